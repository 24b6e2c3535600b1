# SPDX-License-Identifier: MIT
"""Mistakes nobody thought of: the formula itself, with one call of its primitives altered.

Every operation's right formula is there as calls of the primitives of `bridge.judge.oracle.bounded.Bounded`, and a
mistake is one call that does something else. So nothing here is written for an operation: a new one has its mistakes
named from the day its formula exists.

* `calls`: the calls of a formula, and what its intermediates are called;
* `sums`, `arithmetic`, `functions`, `choices`, `windows`, `resampling`, `numbers`: what a call may do instead, by
  primitive;
* `operands`: another memory order, image or pixel of a whole operand;
* `engine`: all of them for an operation or a loss, one call, or all calls of a kind alike.
"""
