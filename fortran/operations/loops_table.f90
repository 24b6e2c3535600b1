! SPDX-License-Identifier: MIT
!> The loops over host tensors, as a table: one for each precision and instruction set, all with the same faces.
module cnn_operations_loops_table
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : tensor_type
   implicit none
   private

   !> See the files *.inc for what they compute
   type, public :: loops_type
      procedure(one_), pointer, nopass :: accumulate => null(), add_bias => null(), copy => null()
      procedure(combine_), pointer, nopass :: combine => null()
      procedure(combine_backward_), pointer, nopass :: combine_backward => null()
      procedure(pointwise_), pointer, nopass :: pointwise => null()
      procedure(pointwise_backward_), pointer, nopass :: pointwise_backward => null()
      procedure(dropout_), pointer, nopass :: dropout => null()
      procedure(channels_), pointer, nopass :: from_channels => null(), to_channels => null()
      procedure(softmax_), pointer, nopass :: softmax => null()
      procedure(softmax_backward_), pointer, nopass :: softmax_backward => null()
      procedure(windows_), pointer, nopass :: max => null(), mean => null(), mean_backward => null()
      procedure(max_backward_), pointer, nopass :: max_backward => null()
      procedure(batch_norm_), pointer, nopass :: batch_norm => null()
      procedure(batch_norm_backward_), pointer, nopass :: batch_norm_backward => null()
      procedure(row_norm_), pointer, nopass :: row_norm => null()
      procedure(row_norm_backward_), pointer, nopass :: row_norm_backward => null()
      procedure(spline_), pointer, nopass :: spline => null()
      procedure(spline_backward_), pointer, nopass :: spline_backward => null()
      procedure(spline_gradients_), pointer, nopass :: spline_gradients => null()
      procedure(resample_), pointer, nopass :: resample => null(), resample_backward => null()
      procedure(pair_loss_), pointer, nopass :: pair_loss => null()
      procedure(transpose_), pointer, nopass :: transpose => null()
      procedure(divided_), pointer, nopass :: spread => null(), sum_to => null()
      procedure(extreme_), pointer, nopass :: extreme => null()
      procedure(extreme_backward_), pointer, nopass :: extreme_backward => null()
      procedure(cross_entropy_), pointer, nopass :: cross_entropy => null()
      procedure(class_entropy_), pointer, nopass :: class_entropy => null()
   end type loops_type

   abstract interface
      subroutine one_(from, to)
         import :: tensor_type
         implicit none
         !> What is read
         type(tensor_type), intent(in) :: from
         !> What is written, or added to
         type(tensor_type), intent(in) :: to
      end subroutine one_

      subroutine combine_(a, b, f, y)
         import :: tensor_type
         implicit none
         !> Extents of y, or 1
         type(tensor_type), intent(in) :: a
         !> Extents of y, or 1
         type(tensor_type), intent(in) :: b
         !> Which function, see binary_numbers.inc
         integer, intent(in) :: f
         !> Is overwritten
         type(tensor_type), intent(in) :: y
      end subroutine combine_

      subroutine combine_backward_(a, b, dy, f, operand, dx)
         import :: tensor_type
         implicit none
         !> Extents of dy, or 1
         type(tensor_type), intent(in) :: a
         !> Extents of dy, or 1
         type(tensor_type), intent(in) :: b
         !> Gradient with respect to y
         type(tensor_type), intent(in) :: dy
         !> Which function, see binary_numbers.inc
         integer, intent(in) :: f
         !> 1 or 2
         integer, intent(in) :: operand
         !> Gradient with respect to that operand, of its extents; is overwritten, may be where dy is
         type(tensor_type), intent(in) :: dx
      end subroutine combine_backward_

      subroutine pointwise_(x, f, settings, y)
         import :: dp, tensor_type
         implicit none
         !> Input
         type(tensor_type), intent(in) :: x
         !> Which function, see function_numbers.inc
         integer, intent(in) :: f
         !> Its two settings
         real(dp), intent(in) :: settings(2)
         !> Output, is overwritten; may be where the input is
         type(tensor_type), intent(in) :: y
      end subroutine pointwise_

      subroutine pointwise_backward_(z, dy, f, settings, dx)
         import :: dp, tensor_type
         implicit none
         !> Input of the function, or its output: see functions.inc
         type(tensor_type), intent(in) :: z
         !> Gradient with respect to the output
         type(tensor_type), intent(in) :: dy
         !> Which function, see function_numbers.inc
         integer, intent(in) :: f
         !> Its two settings
         real(dp), intent(in) :: settings(2)
         !> Gradient with respect to the input, is overwritten; may be where one of the others is
         type(tensor_type), intent(in) :: dx
      end subroutine pointwise_backward_

      subroutine dropout_(x, mask, pixels, scale, y)
         import :: dp, tensor_type
         implicit none
         !> What is dropped or kept
         type(tensor_type), intent(in) :: x
         !> 0 and 1
         type(tensor_type), intent(in) :: mask
         !> Numbers that lie one behind the other and have one of the mask
         integer, intent(in) :: pixels
         !> Of what is kept
         real(dp), intent(in) :: scale
         !> As x, is overwritten
         type(tensor_type), intent(in) :: y
      end subroutine dropout_

      subroutine channels_(from, axis, first, to)
         import :: tensor_type
         implicit none
         !> What is read: a part, or the whole
         type(tensor_type), intent(in) :: from
         !> Of the channels, in Fortran order: torch's axis 1
         integer, intent(in) :: axis
         !> Number of channels before those of the part
         integer, intent(in) :: first
         !> What is written: the whole, or a part
         type(tensor_type), intent(in) :: to
      end subroutine channels_

      subroutine softmax_(x, axis, logarithm, y)
         import :: tensor_type
         implicit none
         !> Input
         type(tensor_type), intent(in) :: x
         !> Of the channels, in Fortran order: torch's axis 1
         integer, intent(in) :: axis
         !> Whether the logarithm is wanted
         logical, intent(in) :: logarithm
         !> As x, is overwritten
         type(tensor_type), intent(in) :: y
      end subroutine softmax_

      subroutine softmax_backward_(y, dy, axis, logarithm, dx)
         import :: tensor_type
         implicit none
         !> Output
         type(tensor_type), intent(in) :: y
         !> Gradient with respect to it
         type(tensor_type), intent(in) :: dy
         !> Of the channels, in Fortran order
         integer, intent(in) :: axis
         !> Whether y is a logarithm
         logical, intent(in) :: logarithm
         !> Gradient with respect to the input, is overwritten
         type(tensor_type), intent(in) :: dx
      end subroutine softmax_backward_

      subroutine windows_(from, kernel, stride, padding, to)
         import :: tensor_type
         implicit none
         !> Images (w, h, c, n), or the gradient with respect to the output
         type(tensor_type), intent(in) :: from
         !> Size of the windows, (height, width)
         integer, intent(in) :: kernel(2)
         !> From window to window
         integer, intent(in) :: stride(2)
         !> Around the image
         integer, intent(in) :: padding(2)
         !> One number for each window, or the gradient with respect to the images; is overwritten
         type(tensor_type), intent(in) :: to
      end subroutine windows_

      subroutine max_backward_(x, dy, kernel, stride, padding, dx)
         import :: tensor_type
         implicit none
         !> Images (w, h, c, n)
         type(tensor_type), intent(in) :: x
         !> Gradient with respect to the output (q, p, c, n)
         type(tensor_type), intent(in) :: dy
         !> Size of the windows, (height, width)
         integer, intent(in) :: kernel(2)
         !> From window to window
         integer, intent(in) :: stride(2)
         !> Around the image
         integer, intent(in) :: padding(2)
         !> Gradient with respect to x, is overwritten
         type(tensor_type), intent(in) :: dx
      end subroutine max_backward_

      subroutine batch_norm_(x, weight, bias, running_mean, running_variance, training, eps, momentum, kept, y)
         import :: dp, tensor_type
         implicit none
         !> Images (w, h, c, n)
         type(tensor_type), intent(in) :: x
         !> Factor of each channel
         type(tensor_type), intent(in) :: weight
         !> Shift of each channel
         type(tensor_type), intent(in) :: bias
         !> Of each channel, may be empty in training; follows the batch's there
         type(tensor_type), intent(in) :: running_mean
         !> The same
         type(tensor_type), intent(in) :: running_variance
         !> Whether mean and variance are the batch's
         logical, intent(in) :: training
         !> Added to the variance
         real(dp), intent(in) :: eps
         !> Part of the batch in what follows it
         real(dp), intent(in) :: momentum
         !> Means, and in the other half 1 / sqrt(variance + eps), float64, are overwritten
         type(tensor_type), intent(in) :: kept
         !> As x, is overwritten
         type(tensor_type), intent(in) :: y
      end subroutine batch_norm_

      subroutine batch_norm_backward_(x, weight, kept, dy, training, dweight, dbias, dx)
         import :: dp, tensor_type
         implicit none
         !> Images (w, h, c, n)
         type(tensor_type), intent(in) :: x
         !> Factor of each channel
         type(tensor_type), intent(in) :: weight
         !> Of the forward pass
         type(tensor_type), intent(in) :: kept
         !> Gradient with respect to the output
         type(tensor_type), intent(in) :: dy
         !> Whether mean and variance are the batch's
         logical, intent(in) :: training
         !> Gradient with respect to the factors, is overwritten
         type(tensor_type), intent(in) :: dweight
         !> Gradient with respect to the shifts, is overwritten
         type(tensor_type), intent(in) :: dbias
         !> Gradient with respect to x, is overwritten
         type(tensor_type), intent(in) :: dx
      end subroutine batch_norm_backward_

      subroutine row_norm_(x, weight, bias, form, eps, y)
         import :: dp, tensor_type
         implicit none
         !> Rows of inner * columns numbers
         type(tensor_type), intent(in) :: x
         !> Factors (column, group), or empty
         type(tensor_type), intent(in) :: weight
         !> Shifts (column, group), or empty
         type(tensor_type), intent(in) :: bias
         !> inner, columns, groups
         integer, intent(in) :: form(3)
         !> Added to the variance
         real(dp), intent(in) :: eps
         !> As x, is overwritten
         type(tensor_type), intent(in) :: y
      end subroutine row_norm_

      subroutine row_norm_backward_(x, weight, dy, form, eps, dweight, dbias, dx)
         import :: dp, tensor_type
         implicit none
         !> Rows of inner * columns numbers
         type(tensor_type), intent(in) :: x
         !> Factors (column, group), or empty
         type(tensor_type), intent(in) :: weight
         !> Gradient with respect to the output
         type(tensor_type), intent(in) :: dy
         !> inner, columns, groups
         integer, intent(in) :: form(3)
         !> Added to the variance
         real(dp), intent(in) :: eps
         !> Gradient with respect to the factors, is overwritten; or empty
         type(tensor_type), intent(in) :: dweight
         !> Gradient with respect to the shifts, is overwritten; or empty
         type(tensor_type), intent(in) :: dbias
         !> Gradient with respect to x, is overwritten
         type(tensor_type), intent(in) :: dx
      end subroutine row_norm_backward_

      subroutine spline_(x, coefficient, scale_base, scale_spline, form, low, high, y)
         import :: dp, tensor_type
         implicit none
         !> Rows of features
         type(tensor_type), intent(in) :: x
         !> (spline, feature, output)
         type(tensor_type), intent(in) :: coefficient
         !> (feature, output)
         type(tensor_type), intent(in) :: scale_base
         !> (feature, output), or empty: all 1
         type(tensor_type), intent(in) :: scale_spline
         !> Degree, intervals
         integer, intent(in) :: form(2)
         !> Where the first interval begins
         real(dp), intent(in) :: low
         !> Where the last one ends
         real(dp), intent(in) :: high
         !> Rows of outputs, is overwritten
         type(tensor_type), intent(in) :: y
      end subroutine spline_

      subroutine spline_backward_(x, coefficient, scale_base, scale_spline, dy, form, low, high, dx)
         import :: dp, tensor_type
         implicit none
         !> Rows of features
         type(tensor_type), intent(in) :: x
         !> (spline, feature, output)
         type(tensor_type), intent(in) :: coefficient
         !> (feature, output)
         type(tensor_type), intent(in) :: scale_base
         !> (feature, output), or empty: all 1
         type(tensor_type), intent(in) :: scale_spline
         !> Gradient with respect to the output
         type(tensor_type), intent(in) :: dy
         !> Degree, intervals
         integer, intent(in) :: form(2)
         !> Where the first interval begins
         real(dp), intent(in) :: low
         !> Where the last one ends
         real(dp), intent(in) :: high
         !> As x, is overwritten
         type(tensor_type), intent(in) :: dx
      end subroutine spline_backward_

      subroutine spline_gradients_(x, coefficient, scale_spline, dy, form, low, high, dscale_spline, dscale_base, &
            & dcoefficient)
         import :: dp, tensor_type
         implicit none
         !> Rows of features
         type(tensor_type), intent(in) :: x
         !> (spline, feature, output)
         type(tensor_type), intent(in) :: coefficient
         !> (feature, output), or empty: all 1
         type(tensor_type), intent(in) :: scale_spline
         !> Gradient with respect to the output
         type(tensor_type), intent(in) :: dy
         !> Degree, intervals
         integer, intent(in) :: form(2)
         !> Where the first interval begins
         real(dp), intent(in) :: low
         !> Where the last one ends
         real(dp), intent(in) :: high
         !> As scale_spline, is overwritten
         type(tensor_type), intent(in) :: dscale_spline
         !> (feature, output), is overwritten
         type(tensor_type), intent(in) :: dscale_base
         !> As the coefficients, is overwritten
         type(tensor_type), intent(in) :: dcoefficient
      end subroutine spline_gradients_

      subroutine resample_(from, rule, amounts, to)
         import :: tensor_type
         implicit none
         !> Images, or the gradient with respect to the output
         type(tensor_type), intent(in) :: from
         !> See `source_place`
         integer, intent(in) :: rule
         !> The rule's, of the height and of the width
         integer, intent(in) :: amounts(2)
         !> The output, or the gradient with respect to the images; is overwritten
         type(tensor_type), intent(in) :: to
      end subroutine resample_

      subroutine transpose_(from, axes, to)
         import :: tensor_type
         implicit none
         !> What is read
         type(tensor_type), intent(in) :: from
         !> Those that are exchanged, in Fortran order, the smaller first
         integer, intent(in) :: axes(2)
         !> What is written
         type(tensor_type), intent(in) :: to
      end subroutine transpose_

      subroutine divided_(from, divisor, to)
         import :: dp, tensor_type
         implicit none
         !> What is read
         type(tensor_type), intent(in) :: from
         !> Of all that is written
         real(dp), intent(in) :: divisor
         !> What is written
         type(tensor_type), intent(in) :: to
      end subroutine divided_

      subroutine extreme_(x, sign, y)
         import :: tensor_type
         implicit none
         !> What is looked through
         type(tensor_type), intent(in) :: x
         !> 1: the largest numbers, -1: the smallest
         integer, intent(in) :: sign
         !> Extents of x, or 1, is overwritten
         type(tensor_type), intent(in) :: y
      end subroutine extreme_

      subroutine extreme_backward_(x, y, dy, to_first, dx)
         import :: tensor_type
         implicit none
         !> What was looked through
         type(tensor_type), intent(in) :: x
         !> What was found, extents of x, or 1
         type(tensor_type), intent(in) :: y
         !> Gradient with respect to that
         type(tensor_type), intent(in) :: dy
         !> Whether it goes to the first of equal ones, not to all in equal parts
         logical, intent(in) :: to_first
         !> Gradient with respect to x, is overwritten
         type(tensor_type), intent(in) :: dx
      end subroutine extreme_backward_

      subroutine pair_loss_(y, t, f, setting, scale, dy, loss)
         import :: dp, tensor_type
         implicit none
         !> Output
         type(tensor_type), intent(in) :: y
         !> What it should be
         type(tensor_type), intent(in) :: t
         !> Which loss, see loss_numbers.inc
         integer, intent(in) :: f
         !> Its setting
         real(dp), intent(in) :: setting
         !> The factor
         real(dp), intent(in) :: scale
         !> Gradient with respect to y, is overwritten
         type(tensor_type), intent(in) :: dy
         !> The loss
         real(dp), intent(out) :: loss
      end subroutine pair_loss_

      subroutine cross_entropy_(y, t, axis, scale, dy, loss)
         import :: dp, tensor_type
         implicit none
         !> Output
         type(tensor_type), intent(in) :: y
         !> Probabilities of the classes
         type(tensor_type), intent(in) :: t
         !> Of the channels, in Fortran order: torch's axis 1
         integer, intent(in) :: axis
         !> The factor
         real(dp), intent(in) :: scale
         !> Gradient with respect to y, is overwritten
         type(tensor_type), intent(in) :: dy
         !> The loss
         real(dp), intent(out) :: loss
      end subroutine cross_entropy_

      subroutine class_entropy_(y, t, weights, axis, classes, ignored, smoothing, scale, dy, loss)
         import :: dp, tensor_type
         implicit none
         !> Output
         type(tensor_type), intent(in) :: y
         !> Probabilities of the classes
         type(tensor_type), intent(in) :: t
         !> One for each class
         type(tensor_type), intent(in) :: weights
         !> Of the channels, in Fortran order: torch's axis 1
         integer, intent(in) :: axis
         !> Whether a target is one class, or none where the pixel does not count
         logical, intent(in) :: classes
         !> A class, from 1, whose pixels do not count either; 0: there is none
         integer, intent(in) :: ignored
         !> Part of the probability that all classes share
         real(dp), intent(in) :: smoothing
         !> The factor
         real(dp), intent(in) :: scale
         !> Gradient with respect to y, is overwritten
         type(tensor_type), intent(in) :: dy
         !> The loss
         real(dp), intent(out) :: loss
      end subroutine class_entropy_
   end interface

end module cnn_operations_loops_table
