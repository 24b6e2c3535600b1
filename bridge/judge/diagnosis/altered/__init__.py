# SPDX-License-Identifier: MIT
"""Mistakes nobody thought of: the formula itself, with one call of its primitives altered.

Every operation's right formula is there as calls of the primitives of `bridge.judge.oracle.bounded.Bounded`, and a
mistake is one call that does something else. So nothing here is written for an operation: a new one has its mistakes
named from the day its formula exists.

* `calls`: the calls of a formula, and what its intermediates are called;
* `sums`, `arithmetic`, `functions`, `choices`, `windows`, `numbers`: what a call may do instead, by primitive;
* `mixed_up`: another number of the formula in the place of an operand, two calls in the wrong order;
* `fits`: settings, constants and small numbers that are added, fitted;
* `operands`: another memory order, image or pixel of a whole operand;
* `others`: another operation in the place of the right one, the same with another setting or of another input;
* `formulas`: what can be evaluated so: operations, losses, parts of sums; `updates`: rules of optimisers;
* `engine`: all of them in stages, one call, or all calls of a kind alike.

What no alteration comes to is in `bridge.judge.diagnosis.wrong_operations`.
"""
