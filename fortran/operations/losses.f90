! SPDX-License-Identifier: MIT
!> Losses of a network's output and a target of its shape.
module cnn_operations_losses
   use, intrinsic :: iso_c_binding, only : c_loc
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : class_entropy_call, cross_entropy_call, pair_loss_call, sum_to_call
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_float64, i8, sp
   use cnn_core_tensor, only : max_rank, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_from, attributes_type
   use cnn_operations_loss_table, only : loss_type, losses
   use cnn_operations_primitives, only : compute_loss, run_primitive => compute
   implicit none
   private

   type, public :: criterion_type
      !> One of `losses`
      character(len=:), allocatable :: kind
      !> A mean over all elements (of the cross entropy over images and pixels), else a sum
      logical :: mean = .true.
      !> Images of the whole batch, over which a mean is, where the output is a part of it; 0: the output is the batch
      integer :: batch_images = 0
      !> Its settings, as exchange files have them
      type(attributes_type) :: attributes
      integer, private :: number = 0
      !> That of the loss; of a cross entropy the part of the probability that all classes share
      real(dp), private :: setting = 0.0_dp
      !> Of a cross entropy: weights of the classes, none where all are 1; whether a target is one class or none, and
      !> not probabilities; the class, from 0, whose pixels do not count, -1: there is none
      real(dp), allocatable, private :: weight(:)
      logical, private :: classes = .false.
      integer, private :: ignored = -1
      !> The weights, and room for a sum of each class, in the device's memory once they have been needed
      type(tensor_type), private :: weights, counts
   contains
      procedure :: set
      procedure :: compute
      procedure :: release
      procedure, private :: set_number, set_classes, compute_classes, count_classes
   end type criterion_type

contains

   !> A loss by its name
   subroutine set(self, text, reduction, error, given)
      class(criterion_type), intent(inout) :: self
      !> Its type in an exchange file, and perhaps its settings: `huber delta=0.5`
      character(len=*), intent(in) :: text
      !> mean or sum
      character(len=*), intent(in) :: reduction
      !> A loss or a setting that is unknown, or one out of its range
      type(error_type), allocatable, intent(out) :: error
      !> Settings that are not in the text
      type(attributes_type), intent(in), optional :: given
      integer :: last, place
      last = index(text//" ", " ") - 1
      self%kind = text(:last)
      self%mean = reduction == "mean"
      place = findloc(losses%kind == self%kind, .true., 1)
      if (place == 0 .or. .not. (self%mean .or. reduction == "sum")) then
         call fail(error, "model: loss is "//self%kind//" with the reduction "//reduction//", expected one of "// &
            & all_kinds()//" with mean or sum")
         return
      end if
      self%attributes = attributes_from(text(last + 1:))
      if (present(given)) self%attributes%items = [self%attributes%items, given%items]
      self%attributes%what = "loss"
      self%attributes%node = self%kind
      call self%set_number(losses(place), error)
      if (.not. allocated(error) .and. self%kind == "cross_entropy") call self%set_classes(error)
      if (.not. allocated(error)) call self%attributes%check_known(error)
   end subroutine set

   !> The loop that computes it, and its only setting
   subroutine set_number(self, row, error)
      class(criterion_type), intent(inout) :: self
      !> Of the table
      type(loss_type), intent(in) :: row
      !> The setting is out of its range
      type(error_type), allocatable, intent(out) :: error
      self%number = int(row%number)
      if (len_trim(row%setting) == 0) return
      call self%attributes%get_real(trim(row%setting), self%setting, error, row%default)
      if (allocated(error)) return
      if (self%setting > 0.0_dp) return
      if (row%is_positive) call fail(error, "model: loss "//self%kind//" has "//trim(row%setting)// &
         & " 0, expected a number larger than 0")
      if (row%at_zero > 0) self%number = int(row%at_zero)
   end subroutine set_number

   !> What only the cross entropy has
   subroutine set_classes(self, error)
      class(criterion_type), intent(inout) :: self
      !> One that is out of its range, or does not fit the others
      type(error_type), allocatable, intent(out) :: error
      integer :: ignored(1)
      call self%attributes%get_reals("weight", self%weight, error)
      if (.not. allocated(error)) call self%attributes%get_integers("ignore_index", ignored, error, 0, -1)
      if (.not. allocated(error)) call self%attributes%get_flag("class_indices", self%classes, error, .false.)
      if (.not. allocated(error)) call self%attributes%get_real("label_smoothing", self%setting, error, 0.0_dp)
      if (allocated(error)) return
      self%ignored = ignored(1)
      if (self%setting > 1.0_dp) then
         call fail(error, "model: loss cross_entropy has label_smoothing "//to_text(self%setting)//", expected 0 to 1")
      else if (self%ignored >= 0 .and. .not. self%classes) then
         call fail(error, "model: loss cross_entropy has ignore_index "//to_text(self%ignored)// &
            & ", expected class_indices 1 beside it: probabilities have no class to ignore")
      end if
   end subroutine set_classes

   !> Names of all losses, for messages
   pure function all_kinds() result(text)
      character(len=sum(len_trim(losses%kind)) + 2*(size(losses) - 1)) :: text
      integer :: i, at
      text = ""
      at = 0
      do i = 1, size(losses)
         if (i > 1) at = at + 2
         if (i > 1) text(at - 1:at) = ", "
         text(at + 1:) = losses(i)%kind
         at = at + len_trim(losses(i)%kind)
      end do
   end function all_kinds

   !> The loss, and its gradient with respect to the output. Where the device queues its work nobody waits for the
   !> loss here: `read_loss` of the backend has it then
   subroutine compute(self, backend, output, target, rank, gradient, loss, error)
      class(criterion_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      !> Of the network
      type(tensor_type), intent(in) :: output
      !> What it should be, of its shape; classes as probabilities
      type(tensor_type), intent(in) :: target
      !> Number of their dimensions
      integer, intent(in) :: rank
      !> With respect to the output, is overwritten
      type(tensor_type), intent(in) :: gradient
      !> Of all images; 0 where the device queues
      real(dp), intent(out) :: loss
      !> The output has no channels, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: scale
      integer(i8) :: elements

      loss = 0.0_dp
      scale = 1.0_dp
      elements = output%count()
      if (self%batch_images > 0) elements = elements/output%extent(rank)*self%batch_images
      if (self%mean) scale = 1.0_dp/real(elements, dp)
      if (self%kind == "mse") then
         call backend%mse(output, target, scale, gradient, error)
         if (.not. (allocated(error) .or. backend%queues)) call backend%read_loss(loss, error)
      else if (self%number > 0) then
         call compute_loss(backend, pair_loss_call(output, target, self%number, self%setting, scale, gradient), loss, &
            & error)
      else if (rank < 2) then
         call fail(error, "loss "//self%kind//": the output has no channels, expected two dimensions or more")
      else
         if (self%mean) scale = scale*output%extent(rank - 1)
         if (self%classes .or. self%setting > 0.0_dp .or. size(self%weight) > 0) then
            call self%compute_classes(backend, output, target, rank - 1, scale, gradient, loss, error)
            return
         end if
         call compute_loss(backend, cross_entropy_call(output, target, rank - 1, scale, gradient), loss, error)
      end if
   end subroutine compute

   !> A cross entropy with settings
   subroutine compute_classes(self, backend, output, target, axis, scale, gradient, loss, error)
      class(criterion_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      !> Of the network
      type(tensor_type), intent(in) :: output
      !> Probabilities of the classes
      type(tensor_type), intent(in) :: target
      !> Of the channels, in Fortran order
      integer, intent(in) :: axis
      !> The factor, where the targets do not decide it
      real(dp), intent(in) :: scale
      !> With respect to the output, is overwritten
      type(tensor_type), intent(in) :: gradient
      !> Of all images; 0 where the device queues
      real(dp), intent(out) :: loss
      !> Weights of another number of classes, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: factor
      integer :: classes, extent(max_rank)

      loss = 0.0_dp
      if (self%mean .and. self%classes .and. self%batch_images > 0) then
         call fail(error, "loss cross_entropy: a mean over the pixels that count, of which a part of a batch "// &
            & "does not know, expected the reduction sum, or probabilities as targets")
         return
      end if
      classes = output%extent(axis)
      if (size(self%weight) > 0 .and. size(self%weight) /= classes) then
         call fail(error, "loss cross_entropy: "//to_text(size(self%weight))//" weights, and the output has "// &
            & to_text(classes)//" channels")
         return
      end if
      extent = 1
      extent(axis) = classes
      if (any(self%weights%extent /= extent)) then
         call self%release(backend)
         call backend%allocate(output%dtype, extent, self%counts, error)
         if (.not. allocated(error)) call backend%allocate(output%dtype, extent, self%weights, error)
         if (.not. allocated(error)) call copy_weights(backend, self%weight, self%weights, error)
         if (allocated(error)) return
      end if
      factor = scale
      if (self%mean .and. self%classes) then
         call self%count_classes(backend, target, factor, error)
         if (allocated(error)) return
         factor = 1.0_dp/factor
      end if
      call compute_loss(backend, class_entropy_call(output, target, self%weights, axis, self%classes, &
         & self%ignored + 1, self%setting, factor, gradient), loss, error)
   end subroutine compute_classes

   !> The weights in a device's memory, in its precision; 1 each where there are none
   subroutine copy_weights(backend, weight, weights, error)
      class(backend_type), intent(in) :: backend
      !> One for each class, or none
      real(dp), intent(in) :: weight(:)
      !> Is overwritten
      type(tensor_type), intent(in) :: weights
      type(error_type), allocatable, intent(out) :: error
      real(dp), target :: wide(weights%count())
      real(sp), target :: narrow(weights%count())
      wide = 1.0_dp
      if (size(weight) > 0) wide = weight
      narrow = real(wide, sp)
      if (weights%dtype == dtype_float64) then
         call backend%copy_in(c_loc(wide), weights, error)
      else
         call backend%copy_in(c_loc(narrow), weights, error)
      end if
   end subroutine copy_weights

   !> The weights of all pixels that count, added up; waits for the device
   subroutine count_classes(self, backend, target, total, error)
      class(criterion_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Classes as probabilities
      type(tensor_type), intent(in) :: target
      !> Of all pixels
      real(dp), intent(out) :: total
      type(error_type), allocatable, intent(out) :: error
      real(dp), target :: wide(self%counts%count())
      real(sp), target :: narrow(self%counts%count())
      total = 0.0_dp
      wide = 0.0_dp
      narrow = 0.0_sp
      call run_primitive(backend, sum_to_call(target, 1.0_dp, self%counts), error)
      if (allocated(error)) return
      if (target%dtype == dtype_float64) then
         call backend%copy_out(self%counts, c_loc(wide), error)
      else
         call backend%copy_out(self%counts, c_loc(narrow), error)
         wide = real(narrow, dp)
      end if
      if (allocated(error)) return
      if (self%ignored >= 0 .and. self%ignored < size(wide)) wide(self%ignored + 1) = 0.0_dp
      if (size(self%weight) > 0) wide = wide*self%weight
      total = sum(wide)
   end subroutine count_classes

   !> Give the device's memory back
   subroutine release(self, backend)
      class(criterion_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      call backend%release(self%weights)
      call backend%release(self%counts)
   end subroutine release

end module cnn_operations_losses
