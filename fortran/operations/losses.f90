! SPDX-License-Identifier: MIT
!> Losses of a network's output and a target of its shape.
module cnn_operations_losses
   use, intrinsic :: iso_c_binding, only : c_loc
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_float64, i8, sp
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_from, attributes_type
   use cnn_operations_loops_levels, only : loops_of
   use cnn_operations_loops_table, only : loops_type
   use cnn_operations_primitives, only : run_primitive => compute
   implicit none
   private

   include "loss_numbers.inc"

   !> A loss of exchange files
   type :: loss_type
      !> Torch's name
      character(len=15) :: kind
      !> Of loss_functions.inc, the losses of each output and its target by themselves; 0: another
      integer(i8) :: number = 0
      !> Its setting, torch's name, and what that is where it is not given
      character(len=15) :: setting = ""
      real(dp) :: default = 0.0_dp
   end type loss_type

   type(loss_type), parameter :: losses(*) = [ &
      & loss_type("bce", loss_bce), &
      & loss_type("bce_with_logits", loss_bce_with_logits, "pos_weight", 1.0_dp), &
      & loss_type("cross_entropy", 0, "label_smoothing", 0.0_dp), &
      & loss_type("huber", loss_huber, "delta", 1.0_dp), &
      & loss_type("l1", loss_l1), &
      & loss_type("mse"), &
      & loss_type("smooth_l1", loss_smooth_l1, "beta", 1.0_dp)]

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
      procedure, private :: set_classes, compute_classes, count_classes
   end type criterion_type

contains

   !> A loss by its name
   subroutine set(self, text, reduction, error, given)
      !> Becomes that loss
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
      self%number = int(losses(place)%number)
      if (len_trim(losses(place)%setting) > 0) call self%attributes%get_real(trim(losses(place)%setting), &
         & self%setting, error, losses(place)%default)
      if (.not. allocated(error) .and. self%kind == "cross_entropy") call self%set_classes(error)
      if (.not. allocated(error)) call self%attributes%check_known(error)
      if (allocated(error)) return
      if (self%kind == "huber" .and. .not. self%setting > 0.0_dp) then
         call fail(error, "model: loss huber has delta 0, expected a number larger than 0")
      else if (self%kind == "smooth_l1" .and. .not. self%setting > 0.0_dp) then
         ! As torch, which would divide 0 by 0 where there is no difference
         self%number = int(loss_l1)
      end if
   end subroutine set

   !> What only the cross entropy has
   subroutine set_classes(self, error)
      !> A cross entropy, with its attributes
      class(criterion_type), intent(inout) :: self
      !> One that is out of its range, or does not fit the others
      type(error_type), allocatable, intent(out) :: error
      integer :: ignored(1)
      call self%attributes%get_reals("weight", self%weight, error)
      if (.not. allocated(error)) call self%attributes%get_integers("ignore_index", ignored, error, 0, -1)
      if (.not. allocated(error)) call self%attributes%get_flag("class_indices", self%classes, error, .false.)
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
      !> Which one
      class(criterion_type), intent(inout) :: self
      !> The device
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
         call compute_other(backend, "pair_loss", [output, target], 0, [self%number], [scale, self%setting], &
            & gradient, loss, error)
      else if (rank < 2) then
         call fail(error, "loss "//self%kind//": the output has no channels, expected two dimensions or more")
      else
         if (self%mean) scale = scale*output%extent(rank - 1)
         if (self%classes .or. self%setting > 0.0_dp .or. size(self%weight) > 0) then
            call self%compute_classes(backend, output, target, rank - 1, scale, gradient, loss, error)
            return
         end if
         call compute_other(backend, "cross_entropy", [output, target], rank - 1, [integer ::], [scale], gradient, &
            & loss, error)
      end if
   end subroutine compute

   !> A cross entropy with settings
   subroutine compute_classes(self, backend, output, target, axis, scale, gradient, loss, error)
      !> Which one; its tensors are allocated
      class(criterion_type), intent(inout) :: self
      !> The device
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
      integer :: classes, extent(4)

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
      call compute_other(backend, "class_entropy", [output, target, self%weights], axis, &
         & [merge(1, 0, self%classes), self%ignored + 1], [factor, self%setting], gradient, loss, error)
   end subroutine compute_classes

   !> The weights in a device's memory, in its precision; 1 each where there are none
   subroutine copy_weights(backend, weight, weights, error)
      !> The device
      class(backend_type), intent(in) :: backend
      !> One for each class, or none
      real(dp), intent(in) :: weight(:)
      !> Is overwritten
      type(tensor_type), intent(in) :: weights
      !> An error of the device
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
      !> Its tensors are allocated
      class(criterion_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> Classes as probabilities
      type(tensor_type), intent(in) :: target
      !> Of all pixels
      real(dp), intent(out) :: total
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      real(dp), target :: wide(self%counts%count())
      real(sp), target :: narrow(self%counts%count())
      total = 0.0_dp
      wide = 0.0_dp
      narrow = 0.0_sp
      call run_primitive(backend, "sum_to", [target, self%counts], error, reals=[1.0_dp])
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
      !> May be used again
      class(criterion_type), intent(inout) :: self
      !> The device
      class(backend_type), intent(inout) :: backend
      call backend%release(self%weights)
      call backend%release(self%counts)
   end subroutine release

   !> A loss that is a loop over host tensors, or a kernel of the device
   subroutine compute_other(backend, name, tensors, axis, integers, reals, gradient, loss, error)
      !> The device
      class(backend_type), intent(inout) :: backend
      !> Of the loop and the kernel
      character(len=*), intent(in) :: name
      !> Output of the network, what it should be, and perhaps more
      type(tensor_type), intent(in) :: tensors(:)
      !> Of the channels, in Fortran order; 0 where they do not matter
      integer, intent(in) :: axis
      !> Settings
      integer, intent(in) :: integers(:)
      !> The factor, and settings
      real(dp), intent(in) :: reals(:)
      !> With respect to the output, is overwritten
      type(tensor_type), intent(in) :: gradient
      !> Of all images; 0 where the device queues
      real(dp), intent(out) :: loss
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      type(loops_type) :: loops
      loss = 0.0_dp
      if (.not. backend%in_host_memory) then
         call backend%other_loss(name, tensors, axis, integers, reals, gradient, error)
         if (.not. (allocated(error) .or. backend%queues)) call backend%read_loss(loss, error)
         return
      end if
      loops = loops_of(gradient%dtype)
      select case (name)
       case ("pair_loss")
         call loops%pair_loss(tensors(1), tensors(2), integers(1), reals(2), reals(1), gradient, loss)
       case ("class_entropy")
         call loops%class_entropy(tensors(1), tensors(2), tensors(3), axis, integers(1) == 1, integers(2), reals(2), &
            & reals(1), gradient, loss)
       case default
         call loops%cross_entropy(tensors(1), tensors(2), axis, reals(1), gradient, loss)
      end select
   end subroutine compute_other

end module cnn_operations_losses
