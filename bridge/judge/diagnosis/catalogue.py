# SPDX-License-Identifier: MIT
"""The registry of faults: named ways to be wrong, and where to look for each in the code.

The numbers are those of docs/faults.md. How each is predicted stands in the modules that use the kind.
"""

from __future__ import annotations

from bridge.judge.diagnosis.records import Kind

#: Key, title, what to look at; numbered from 1
_TABLE = (
    (
        "kernel_flipped",
        "kernel flipped",
        "the convolution mode: cuDNN's CUDNN_CONVOLUTION = 0 flips, CUDNN_CROSS_CORRELATION = 1 does not (torch "
        "never flips); a loop that counts taps down; a second flip in an export that hides the first",
    ),
    (
        "taps_transposed",
        "kernel height and width swapped",
        "the order of r and s in loops, and in the declaration of the kernel: numpy (k,c,r,s) is Fortran (s,r,c,k)",
    ),
    (
        "in_out_swapped",
        "input and output channels swapped",
        "which channel index comes first: torch and cuDNN keep filters as (k,c,r,s), k the output channel",
    ),
    (
        "column_major",
        "memory right, read in the wrong order of axes",
        "the declaration: memory that C, cuDNN or HDF5 wrote as (k,c,r,s) must be declared (s,r,c,k) in Fortran "
        "(kw,kh,in,out), not (k,c,r,s); reshape without order, HDF5's reversed dimensions",
    ),
    (
        "image_transposed",
        "image transposed or mirrored",
        "the order of h and w: numpy (n,c,h,w) is Fortran (w,h,c,n); a transpose at a boundary that needs none",
    ),
    (
        "nhwc",
        "NCHW and NHWC mixed",
        "the tensor format of descriptors (CUDNN_TENSOR_NCHW or NHWC), channels_last arrays passed without a copy",
    ),
    (
        "channels_permuted",
        "channels or images in another order",
        "the loop over channels (reversed? grouped?), the order in which images of a batch are gathered",
    ),
    (
        "dgrad_not_rotated",
        "data gradient without the rotation of the kernel",
        "the data gradient correlates dz with kernels turned by 180 degrees: backward-data, not forward, is to be "
        "called",
    ),
    (
        "padding_mode",
        "padded with something else than zeros",
        "the padding: copies of the border, mirrored or wrapped pixels instead of zeros",
    ),
    (
        "padding_width",
        "padding off by one, or a border not computed",
        "the padding of each side, the first and last index of the loops over outputs ('valid' where 'same' is meant)",
    ),
    (
        "shifted_gradient",
        "dz shifted",
        "the index of dz in the gradient loops: 0- and 1-based indices, a halo that is not cut off",
    ),
    (
        "geometry",
        "wrong stride or dilation",
        "the descriptor of the convolution in this direction: stride and dilation must be those of the forward pass",
    ),
    (
        "bias",
        "bias missing or added twice",
        "where the bias is added: a fused call and a separate one, or none",
    ),
    (
        "bias_axis",
        "bias along the wrong axis",
        "the broadcast of the bias: it belongs to channels, descriptor (1,k,1,1)",
    ),
    (
        "part_of_batch",
        "summed over a part of the batch or image",
        "the bounds of the loops of the reduction: last image, last row; a batch size that was not passed on",
    ),
    (
        "scale",
        "a constant factor",
        "mean or sum, over which dimensions (N, B, C, H*W), factors 2 and 1/2, alpha of library calls",
    ),
    (
        "factor_two",
        "factor 2 missing in the gradient of the loss",
        "d/dy of (y - t)**2 is 2*(y - t); or a loss with 1/2 whose gradient is that of one without",
    ),
    (
        "count",
        "wrong number of elements in a mean",
        "N off by one (N - 1, N + 1), a padded count, the input's count in place of the output's",
    ),
    (
        "mask_missing",
        "ReLU mask missing",
        "the backward pass of the ReLU: is it called, is its result used?",
    ),
    (
        "mask_other",
        "mask from another tensor",
        "which tensor the mask is made of: the input of this ReLU of this batch; not da, not another layer, not "
        "the previous batch",
    ),
    (
        "relu",
        "ReLU too much or missing",
        "fused activations (CUDNN_ACTIVATION_IDENTITY for the last layer), the list of layers",
    ),
    (
        "leaky",
        "slope on the negative side",
        "a leaky ReLU, or an activation descriptor with a coefficient",
    ),
    (
        "accumulated",
        "added to old contents",
        "beta of library calls must be 0; gradients must be zeroed before each step; Fortran: 'real :: beta = "
        "0.0' in a declaration is SAVEd",
    ),
    (
        "state",
        "right in the first call only",
        "variables that live from call to call: SAVE (also by initialisation), workspaces, cached plans or descriptors",
    ),
    (
        "previous_step",
        "weights or gradient of another step",
        "the order of backward pass and update, copies to the device that are late by one step",
    ),
    (
        "race",
        "two runs differ",
        "synchronisation: reading before a kernel or a copy has finished; uninitialised memory; threads writing "
        "one element",
    ),
    (
        "uninitialised",
        "a part was never written",
        "the launch configuration or loop bounds: some elements are never computed; fill outputs with NaN before calls",
    ),
    (
        "corrupted",
        "single elements, rows or tiles wrong",
        "a rectangle or a run: the edges of tiles and loops; scattered elements: memory errors (-fcheck=all, "
        "compute-sanitizer, ECC counters)",
    ),
    (
        "overwritten",
        "overwritten by a neighbour",
        "the buffer before or after this one in memory: a write beyond its end (-fcheck=bounds, compute- sanitizer)",
    ),
    (
        "precision",
        "operands of a lower precision",
        "the math mode: cuDNN's default allows TF32 (CUDNN_FMA_MATH does not); PyTorch: allow_tf32 = False; the type "
        "of tensors: half or bfloat16, PyTorch's autocast",
    ),
    (
        "underflow",
        "small values lost",
        "gradients below the range of fp16 (6e-8): scale the loss; flush-to-zero compiler options",
    ),
    (
        "naive_sum",
        "strictly sequential sum in low precision",
        "sums of millions of terms: add in blocks, pairwise, or in double precision",
    ),
    (
        "learning_rate",
        "learning rate",
        "the learning rate: its value, its precision, whether it is divided by the batch, the step of a schedule",
    ),
    (
        "update_sign",
        "sign of the update",
        "w = w - lr*g, not plus",
    ),
    (
        "weight_decay",
        "weight decay",
        "torch adds weight_decay*w to the gradient, before momentum, for weights and biases; AdamW takes "
        "lr*weight_decay*w off the weights",
    ),
    (
        "momentum",
        "momentum",
        "torch: v = mu*v + (1 - dampening)*g, v = g at the first step; lr outside v; Nesterov: g + mu*v",
    ),
    (
        "wrong_tensor",
        "not updated, or with another tensor's gradient",
        "the list of parameters and gradients that the update loops over",
    ),
    (
        "storage",
        "damaged when it was stored",
        "rounding, printing with few digits, quantising, byte order, or element size when tensors are written",
    ),
    (
        "stale",
        "stale, copied or all zero",
        "whether the result is of this run: an old file, a tensor never filled, one step written twice",
    ),
    (
        "saved_weights",
        "saved weights scrambled",
        "saving and loading: gradients are right, the weights are stored in another order",
    ),
    (
        "library_constant",
        "the same fault in every layer",
        "constants of the library's interface: compare each enumerator with the header",
    ),
    (
        "taps_rolled",
        "kernel rolled",
        "the index of taps: 0- and 1-based, modulo the size of the kernel; a kernel that was shifted for an FFT",
    ),
    (
        "same_pixel",
        "no shift between taps",
        "the index of the image in the loop over taps: (i + r, j + s), with padding; not (i, j) for every tap",
    ),
    (
        "other_layer",
        "an operand of another layer",
        "the index of the layer in lists of inputs, gradients, kernels and biases; a buffer that layers share",
    ),
    (
        "clipped",
        "clipped",
        "clip, clamp, minimum and maximum: a ReLU6 in place of a ReLU, gradients that are clipped in place, by value "
        "or by norm",
    ),
    (
        "dropout",
        "dropout left on",
        "layers that work in training only: model.eval(), the probability of dropout; the reference has none",
    ),
    (
        "other_target",
        "another image's target",
        "the order in which images and targets are loaded: shuffled together, cut and turned together, of one batch",
    ),
    (
        "branch",
        "a branch missing or twice in a gradient",
        "gradients of an output that several layers take: they are added, none overwrites what is there (beta = 1)",
    ),
    (
        "joined",
        "inputs joined wrongly",
        "the order of the inputs of a concatenation and of the channels that go back to each; both inputs of a sum",
    ),
    (
        "activation",
        "another activation, loss or derivative",
        "the derivative of an activation, from its output y: y*(1 - y) of a sigmoid, 1 - y*y of a tanh; a dropout "
        "divides what it keeps by 1 - p, in both passes; which loss it is, its settings, and what they are of; the "
        "knots of splines, which go on by the degree on each side",
    ),
    (
        "pooling",
        "pooling or upsampling of another kind or element",
        "what a window gives: torch pads a maximum with -infinity, counts the padding in a mean, and sends the "
        "gradient of a maximum to the first of equal elements; a pixel of an interpolation lies at "
        "(i + 1/2)/scale - 1/2",
    ),
    (
        "statistics",
        "statistics of a normalisation",
        "variance with n (only the running one with n - 1), and eps inside the root; over the batch and all pixels; "
        "the backward pass goes through mean and variance, too",
    ),
    (
        "adam",
        "a rule of Adam",
        "both averages are divided by 1 - beta**t, t = 1 at the first step, before the root; eps is added to the root",
    ),
    (
        "term",
        "a term of a formula missing, twice or of the other sign",
        "the line that computes this, term by term, beside the formula in the documentation of torch",
    ),
    (
        "factor",
        "a factor of a formula missing, twice or inverted",
        "the line that computes this, factor by factor; products that were cancelled by hand",
    ),
    (
        "function",
        "another function in a formula",
        "which function is called, the base of logarithms and powers, what its argument is multiplied by, its limits",
    ),
    (
        "constant",
        "another constant in a formula",
        "the digits of the constant, its precision where it is declared (real(4) or real(8)), a setting that was not "
        "passed on",
    ),
    (
        "index",
        "an index that is off",
        "the index of this loop: 0- and 1-based, where it begins, what it wraps around, which of two counts is inside",
    ),
    (
        "summed_axes",
        "summed over other axes, or the sum of another slice",
        "the axes of this reduction and how its result is spread again: per image, per channel, per group",
    ),
    (
        "other_number",
        "another number of the formula in its place",
        "the names of variables in this line: a value before and after it is normalised or activated, an array that is "
        "reused for two things",
    ),
)

KINDS: tuple[Kind, ...] = tuple(Kind(number, *row) for number, row in enumerate(_TABLE, start=1))

#: Those of operations and optimisers that no chain of convolutions and ReLUs, trained by SGD, has
BEYOND_CHAINS = frozenset({"branch", "joined", "activation", "pooling", "statistics", "adam", "term", "factor",
                            "function", "constant", "index", "summed_axes", "other_number"})

#: What faults are of, for lists that a reader is to take in at once
FAMILIES = {
    "order in memory and of channels": (
        "kernel_flipped", "taps_transposed", "in_out_swapped", "column_major", "image_transposed", "nhwc",
        "channels_permuted", "dgrad_not_rotated", "taps_rolled", "saved_weights"),
    "padding, shifts, strides": ("padding_mode", "padding_width", "shifted_gradient", "geometry", "same_pixel"),
    "sums, means, factors": ("bias", "bias_axis", "part_of_batch", "scale", "factor_two", "count"),
    "activations, masks, losses": ("mask_missing", "mask_other", "relu", "leaky", "clipped", "dropout", "activation"),
    "pooling, normalisation, joins": ("branch", "joined", "pooling", "statistics"),
    "wrong operands": ("previous_step", "wrong_tensor", "stale", "other_layer", "other_target", "library_constant"),
    "memory and threads": ("accumulated", "state", "race", "uninitialised", "corrupted", "overwritten"),
    "terms and factors of a formula": (
        "term", "factor", "function", "constant", "index", "summed_axes", "other_number"),
    "precision and storage": ("precision", "underflow", "naive_sum", "storage"),
    "optimiser": ("learning_rate", "update_sign", "weight_decay", "momentum", "adam"),
}

_BY_KEY = {one.key: one for one in KINDS}
_FAMILY = {_BY_KEY[key].number: name for name, keys in FAMILIES.items() for key in keys}
#: An image turned over is no fault of its own in the list: it is one of the order of pixels
_BY_KEY["image_mirrored"] = _BY_KEY["image_transposed"]


def kind(key: str) -> Kind:
    """Return a kind by its key.

    >>> kind("kernel_flipped").number
    1
    """
    return _BY_KEY[key]


def family(fault: Kind) -> str:
    """Return what a fault is of.

    >>> family(kind("kernel_flipped"))
    'order in memory and of channels'
    """
    return _FAMILY[fault.number]
