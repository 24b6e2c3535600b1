! SPDX-License-Identifier: MIT
!> All learned numbers of a network: values, gradients, and what the optimizer remembers, each one vector on the device.
!>
!> One vector, so that one call updates everything; where only some parameters are frozen, or only some have a momentum,
!> one call each run of parameters that are updated alike. A layer's weight or bias is a tensor inside it, aligned as an
!> allocation of its own would be; the gaps between them hold zeros, which every update leaves zero.
module cnn_model_parameters
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : bytes_of, dp, i8
   use cnn_core_tensor, only : aligned, extent_of, max_rank, part_of, tensor_type
   use cnn_core_text, only : name_type, to_text
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   !> A learned tensor and its gradient, inside the vectors
   type, public :: parameter_type
      type(tensor_type) :: value, gradient
      !> Its number among the network's parameters, from 1; 0 where a layer has none
      integer :: number = 0
   end type parameter_type

   !> What is known of a parameter besides its numbers
   type :: part_type
      !> Bytes of a vector before it, and from there up to the next one
      integer(i8) :: offset = 0_i8, bytes = 0_i8
      integer :: extent(max_rank) = 0
      !> Whether updates leave it as it is, as torch's do without a gradient: no decay and no momentum either
      logical :: is_frozen = .false.
      !> Whether the optimizer remembers something of it: SGD a momentum, as from its first update with momentum on,
      !> which makes it from the gradient alone
      logical :: has_state = .false.
      !> Updates that changed what is remembered; of a momentum that was read, 1
      integer(i8) :: updates = 0_i8
   end type part_type

   type, public :: parameters_type
      type(tensor_type), private :: values, gradients
      !> What the optimizer remembers: SGD's momentum; Adam's averages of the gradient and of its square
      type(tensor_type), private :: states(2)
      !> Their names, which say whose memory it is; not allocated where nothing is remembered
      type(name_type), allocatable, private :: names(:)
      !> In the order of the vectors
      type(part_type), allocatable, private :: parts(:)
   contains
      procedure :: build
      procedure :: update
      procedure :: freeze, is_frozen
      procedure :: all_gradients
      procedure :: memory, memory_count, memory_name, has_memory_of, updates_of, keep_memory, forget
      procedure :: release
      procedure, private :: allocate_vectors, place, take_names, reserve_states
   end type parameters_type

   interface
      !> One step on all parameters that are not frozen
      module subroutine update(self, backend, optimizer, error)
         implicit none
         class(parameters_type), intent(inout) :: self
         class(backend_type), intent(inout) :: backend
         !> With the learning rate of this step
         class(optimizer_type), intent(in) :: optimizer
         !> No memory for what it remembers, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine update
   end interface

contains

   !> Allocate for parameters of these extents
   subroutine build(self, backend, dtype, extents, found, error)
      class(parameters_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      !> Element type of all numbers, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Of each, in Fortran order
      integer, intent(in) :: extents(:, :)
      !> Each of them, with its tensors
      type(parameter_type), intent(out) :: found(:)
      !> No memory on the device, or 2**31 parameters or more
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: bytes
      integer :: i

      allocate (self%parts(0))
      bytes = 0_i8
      do i = 1, size(found)
         bytes = bytes + padded(dtype, extents(:, i))
      end do
      if (bytes == 0) return
      call self%allocate_vectors(backend, dtype, bytes/bytes_of(dtype), error)
      if (allocated(error)) return
      bytes = 0_i8
      do i = 1, size(found)
         call self%place(extents(:, i), bytes, found(i))
      end do
   end subroutine build

   !> The next parameter
   subroutine place(self, extent, bytes, parameter)
      class(parameters_type), intent(inout) :: self
      !> Extents of the parameter
      integer, intent(in) :: extent(max_rank)
      !> Bytes of the vectors, up to this parameter and then up to the next
      integer(i8), intent(inout) :: bytes
      !> Number and tensors of the parameter
      type(parameter_type), intent(inout) :: parameter
      self%parts = [self%parts, part_type(offset=bytes, bytes=padded(self%values%dtype, extent), extent=extent)]
      parameter%number = size(self%parts)
      parameter%value = part_of(self%values, bytes, extent)
      parameter%gradient = part_of(self%gradients, bytes, extent)
      bytes = bytes + self%parts(parameter%number)%bytes
   end subroutine place

   !> Bytes of a tensor up to where the next one may start
   pure integer(i8) function padded(dtype, extent)
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Extents in Fortran order
      integer, intent(in) :: extent(max_rank)
      padded = aligned(product(int(extent, i8))*bytes_of(dtype))
   end function padded

   subroutine allocate_vectors(self, backend, dtype, elements, error)
      class(parameters_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      !> Element type of all numbers, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Elements of each vector, the gaps included
      integer(i8), intent(in) :: elements
      !> No memory on the device, or 2**31 elements or more
      type(error_type), allocatable, intent(out) :: error
      integer :: extent(max_rank)
      if (elements > huge(1)) then
         call fail(error, "network: "//to_text(elements)//" parameters, expected fewer than 2**31")
         return
      end if
      extent = extent_of([int(elements)])
      call backend%allocate(dtype, extent, self%values, error)
      if (allocated(error)) return
      call backend%allocate(dtype, extent, self%gradients, error)
      if (allocated(error)) return
      call backend%clear(self%values, error)
      if (allocated(error)) return
      call backend%clear(self%gradients, error)
   end subroutine allocate_vectors

   !> From now on updates leave a parameter as it is, or no longer
   pure subroutine freeze(self, number, frozen)
      class(parameters_type), intent(inout) :: self
      !> Number of the parameter, from 1
      integer, intent(in) :: number
      !> Whether to leave it as it is
      logical, intent(in) :: frozen
      self%parts(number)%is_frozen = frozen
   end subroutine freeze

   !> Whether updates leave a parameter as it is
   pure logical function is_frozen(self, number)
      class(parameters_type), intent(in) :: self
      !> Number of the parameter, from 1; 0 for none
      integer, intent(in) :: number
      is_frozen = .false.
      if (number > 0) is_frozen = self%parts(number)%is_frozen
   end function is_frozen

   !> The gradients of all parameters, with the zeros between them; empty where there are no parameters
   type(tensor_type) function all_gradients(self)
      class(parameters_type), intent(in) :: self
      all_gradients = self%gradients
   end function all_gradients

   !> What is remembered of a parameter, inside the vector; empty where that is nothing
   type(tensor_type) function memory(self, number, i)
      class(parameters_type), intent(in) :: self
      !> Number of the parameter, from 1
      integer, intent(in) :: number
      !> Which of the optimizer's numbers, from 1
      integer, intent(in) :: i
      if (i > self%memory_count(number)) return
      associate (part => self%parts(number))
         memory = part_of(self%states(i), part%offset, part%extent)
      end associate
   end function memory

   !> How many numbers are remembered of each element of a parameter
   pure integer function memory_count(self, number)
      class(parameters_type), intent(in) :: self
      !> Number of the parameter, from 1
      integer, intent(in) :: number
      memory_count = 0
      if (self%parts(number)%has_state) memory_count = size(self%names)
   end function memory_count

   !> Whether something is remembered of a parameter, by this optimizer
   pure logical function has_memory_of(self, number, optimizer)
      class(parameters_type), intent(in) :: self
      !> Number of the parameter, from 1
      integer, intent(in) :: number
      !> Another one forgets it
      class(optimizer_type), intent(in) :: optimizer
      type(name_type), allocatable :: names(:)
      has_memory_of = self%parts(number)%has_state
      if (.not. has_memory_of) return
      allocate (names, source=optimizer%memory_names())
      has_memory_of = self%names(1)%text == names(1)%text
   end function has_memory_of

   !> The name of a number that is remembered
   pure function memory_name(self, i) result(name)
      class(parameters_type), intent(in) :: self
      !> Which, from 1
      integer, intent(in) :: i
      character(len=len(self%names(i)%text)) :: name
      name = self%names(i)%text
   end function memory_name

   !> How many updates have changed what is remembered
   pure integer(i8) function updates_of(self, number)
      class(parameters_type), intent(in) :: self
      !> Number of the parameter, from 1
      integer, intent(in) :: number
      updates_of = self%parts(number)%updates
   end function updates_of

   !> Let something be remembered of a parameter, zero where nothing was
   subroutine keep_memory(self, backend, number, names, updates, error)
      class(parameters_type), intent(inout) :: self
      !> Where its numbers are
      class(backend_type), intent(inout) :: backend
      !> Number of the parameter, from 1
      integer, intent(in) :: number
      !> What, by the optimizer's names; what another optimizer remembers is forgotten
      type(name_type), intent(in) :: names(:)
      !> How many updates have changed it
      integer(i8), intent(in) :: updates
      type(error_type), allocatable, intent(out) :: error
      logical :: was_there
      integer :: i
      call self%take_names(names)
      call self%reserve_states(backend, size(names), error)
      if (allocated(error)) return
      was_there = self%parts(number)%has_state
      self%parts(number)%has_state = .true.
      self%parts(number)%updates = updates
      if (was_there) return
      do i = 1, size(names)
         call backend%clear(self%memory(number, i), error)
         if (allocated(error)) return
      end do
   end subroutine keep_memory

   !> Remember nothing of a parameter
   pure subroutine forget(self, number)
      class(parameters_type), intent(inout) :: self
      !> Number of the parameter, from 1
      integer, intent(in) :: number
      self%parts(number)%has_state = .false.
      self%parts(number)%updates = 0_i8
   end subroutine forget

   !> What is remembered is from now on an optimizer's with these names; another one's is forgotten
   subroutine take_names(self, names)
      class(parameters_type), intent(inout) :: self
      !> The optimizer's
      type(name_type), intent(in) :: names(:)
      if (allocated(self%names)) then
         if (self%names(1)%text == names(1)%text) return
         self%parts%has_state = .false.
         self%parts%updates = 0_i8
      end if
      self%names = names
   end subroutine take_names

   !> Memory for what the optimizer remembers, zero at first
   subroutine reserve_states(self, backend, count, error)
      class(parameters_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      !> Numbers of each parameter: 0, 1 or 2
      integer, intent(in) :: count
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      if (.not. self%values%is_allocated()) return
      do i = 1, count
         if (self%states(i)%is_allocated()) cycle
         call backend%allocate(self%values%dtype, self%values%extent, self%states(i), error)
         if (.not. allocated(error)) call backend%clear(self%states(i), error)
         if (.not. allocated(error)) cycle
         call backend%release(self%states(i))
         return
      end do
   end subroutine reserve_states

   subroutine release(self, backend)
      class(parameters_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      call backend%release(self%values)
      call backend%release(self%gradients)
      call backend%release(self%states(1))
      call backend%release(self%states(2))
   end subroutine release

end module cnn_model_parameters
