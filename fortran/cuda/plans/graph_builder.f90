! SPDX-License-Identifier: MIT
!> Descriptors of cuDNN's graph API: made, filled in and finalized, with every status checked.
!>
!>     call builder%open(dnn)
!>     tensor = builder%descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor")
!>     call builder%set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, [2_i8, 16_i8, 64_i8, 64_i8])
!>     call builder%finalize(tensor)
!>     call builder%close(error)
!>
!> Errors.  The first one is kept, and nothing is done after it: a graph is written down line by line, and asked at
!>          the end whether it stands.
!> Memory.  All descriptors are destroyed by `close`, but those that `keep` took out.
!> Source.  cuDNN 9 backend API reference.
module cnn_cuda_plans_graph_builder
   use, intrinsic :: iso_c_binding, only : c_associated, c_bool, c_char, c_double, c_float, c_int, c_int64_t, c_loc, &
      & c_null_char, c_null_ptr, c_ptr
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8, sp
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudnn, only : is_unsupported
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_bindings_cudnn_graph_enums, only : CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_TYPE_BOOLEAN, CUDNN_TYPE_CHAR, &
      & CUDNN_TYPE_DOUBLE, CUDNN_TYPE_FLOAT, CUDNN_TYPE_HANDLE, CUDNN_TYPE_INT64, CUDNN_TYPE_VOID_PTR
   implicit none
   private

   !> Of a text that is read
   integer(c_int64_t), parameter :: most_letters = 2_c_int64_t**26

   type :: made_type
      type(c_ptr) :: address = c_null_ptr
      !> For messages; of fixed length, because there are many
      character(len=48) :: what = ""
   end type made_type

   type, public :: graph_builder_type
      type(cudnn_type), pointer :: dnn => null()
      !> The first that occurred, and its status
      type(error_type), allocatable :: error
      integer(c_int) :: status = 0
      !> The first of those that were set aside
      type(error_type), allocatable :: aside
      type(made_type), allocatable, private :: made(:)
   contains
      procedure :: open => open_builder
      procedure :: close => close_builder
      procedure :: ok
      procedure :: refused
      procedure :: forget_error
      procedure :: set_aside
      procedure :: check
      procedure :: descriptor
      procedure :: finalize
      procedure :: keep
      generic :: set => set_integers, set_flag, set_descriptors, set_text
      procedure :: set_enum
      procedure :: set_handle
      procedure :: set_addresses
      procedure :: set_number
      procedure :: get_descriptors
      procedure :: get_enums
      procedure :: get_integer
      procedure, private :: set_integers, set_flag, set_descriptors, set_text
      procedure, private :: set_elements, get_elements, name_of
   end type graph_builder_type

contains

   subroutine open_builder(self, dnn)
      class(graph_builder_type), intent(inout) :: self
      !> The graph API, loaded; must live as long
      type(cudnn_type), intent(inout), target :: dnn
      self%dnn => dnn
      if (allocated(self%error)) deallocate (self%error)
      if (allocated(self%aside)) deallocate (self%aside)
      if (allocated(self%made)) deallocate (self%made)
      allocate (self%made(0))
   end subroutine open_builder

   !> Destroy what was made, last first; `error` is the first that occurred
   subroutine close_builder(self, error)
      class(graph_builder_type), intent(inout) :: self
      !> The first one; those forgotten or set aside are none
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: ignored
      integer :: i
      do i = size(self%made), 1, -1
         ! A descriptor is host memory: that destroying it failed concerns nobody
         ignored = self%dnn%backend_destroy_descriptor(self%made(i)%address)
      end do
      deallocate (self%made)
      if (allocated(self%error)) call move_alloc(self%error, error)
   end subroutine close_builder

   !> Whether everything went well so far
   pure logical function ok(self)
      class(graph_builder_type), intent(in) :: self
      ok = .not. allocated(self%error)
   end function ok

   !> Whether cuDNN has nothing for what was asked for: that error is gone then, and the answer is no
   logical function refused(self)
      class(graph_builder_type), intent(inout) :: self
      refused = .not. self%ok() .and. is_unsupported(self%status)
      if (refused) deallocate (self%error)
   end function refused

   !> Go on after an error that does not matter
   subroutine forget_error(self)
      class(graph_builder_type), intent(inout) :: self
      if (allocated(self%error)) deallocate (self%error)
   end subroutine forget_error

   !> Go on after an error that matters only where nothing else is found
   subroutine set_aside(self)
      class(graph_builder_type), intent(inout) :: self
      if (self%refused() .or. self%ok()) return
      if (.not. allocated(self%aside)) self%aside = self%error
      call self%forget_error()
   end subroutine set_aside

   !> Keep the first error
   subroutine check(self, status, what)
      class(graph_builder_type), intent(inout) :: self
      !> A `cudnnStatus_t`
      integer(c_int), intent(in) :: status
      !> What was tried, for the message
      character(len=*), intent(in) :: what
      if (.not. self%ok()) return
      call self%dnn%check(status, "graph: "//what, self%error)
      self%status = status
   end subroutine check

   !> A new descriptor of a type CUDNN_BACKEND_..._DESCRIPTOR; null after an error
   function descriptor(self, kind, what) result(address)
      class(graph_builder_type), intent(inout) :: self
      !> A `cudnnBackendDescriptorType_t`
      integer(c_int), intent(in) :: kind
      !> What it is, for messages
      character(len=*), intent(in) :: what
      type(c_ptr) :: address
      address = c_null_ptr
      if (.not. self%ok()) return
      call self%check(self%dnn%backend_create_descriptor(kind, address), "make "//what)
      if (self%ok()) then
         self%made = [self%made, made_type(address, what)]
      else
         address = c_null_ptr
      end if
   end function descriptor

   subroutine finalize(self, address)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor whose attributes are set
      type(c_ptr), intent(in) :: address
      if (self%ok()) call self%check(self%dnn%backend_finalize(address), self%name_of(address))
   end subroutine finalize

   !> `close` leaves this descriptor alone: the caller destroys it
   subroutine keep(self, address)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor made here
      type(c_ptr), intent(in) :: address
      integer :: i
      do i = 1, size(self%made)
         if (.not. c_associated(self%made(i)%address, address)) cycle
         self%made = [self%made(:i - 1), self%made(i + 1:)]
         return
      end do
   end subroutine keep

   subroutine set_integers(self, address, attribute, values)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> All of the attribute's elements, as int64
      integer(i8), intent(in) :: values(:)
      integer(c_int64_t), target :: elements(size(values))
      elements = values
      call self%set_elements(address, attribute, CUDNN_TYPE_INT64, size(values), c_loc(elements))
   end subroutine set_integers

   subroutine set_flag(self, address, attribute, value)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> The attribute's only element
      logical, intent(in) :: value
      logical(c_bool), target :: element
      element = logical(value, c_bool)
      call self%set_elements(address, attribute, CUDNN_TYPE_BOOLEAN, 1, c_loc(element))
   end subroutine set_flag

   subroutine set_descriptors(self, address, attribute, values)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> Other descriptors, finalized
      type(c_ptr), intent(in) :: values(:)
      type(c_ptr), target :: elements(size(values))
      elements = values
      call self%set_elements(address, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, size(values), c_loc(elements))
   end subroutine set_descriptors

   !> Device addresses
   subroutine set_addresses(self, address, attribute, values)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> Device addresses
      type(c_ptr), intent(in) :: values(:)
      type(c_ptr), target :: elements(size(values))
      elements = values
      call self%set_elements(address, attribute, CUDNN_TYPE_VOID_PTR, size(values), c_loc(elements))
   end subroutine set_addresses

   subroutine set_text(self, address, attribute, text)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> Text without a NUL at the end
      character(len=*), intent(in) :: text
      character(kind=c_char), target :: elements(len(text))
      integer :: i
      do i = 1, len(text)
         elements(i) = text(i:i)
      end do
      call self%set_elements(address, attribute, CUDNN_TYPE_CHAR, len(text), c_loc(elements))
   end subroutine set_text

   !> One value of an enumeration, of a type CUDNN_TYPE_...
   subroutine set_enum(self, address, attribute, kind, value)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> The `cudnnBackendAttributeType_t` of the elements
      integer(c_int), intent(in) :: kind
      !> The enumerator
      integer(c_int), intent(in) :: value
      integer(c_int), target :: element
      element = value
      call self%set_elements(address, attribute, kind, 1, c_loc(element))
   end subroutine set_enum

   !> A cudnnHandle_t
   subroutine set_handle(self, address, attribute, handle)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> Handle of cuDNN
      type(c_ptr), intent(in) :: handle
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      type(c_ptr), target :: element
      element = handle
      call self%set_elements(address, attribute, CUDNN_TYPE_HANDLE, 1, c_loc(element))
   end subroutine set_handle

   !> A factor, as float64 or float32
   subroutine set_number(self, address, attribute, value, double)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> The factor
      real(dp), intent(in) :: value
      !> Whether as float64
      logical, intent(in) :: double
      real(c_double), target :: long
      real(c_float), target :: short
      long = value
      short = real(value, sp)
      if (double) then
         call self%set_elements(address, attribute, CUDNN_TYPE_DOUBLE, 1, c_loc(long))
      else
         call self%set_elements(address, attribute, CUDNN_TYPE_FLOAT, 1, c_loc(short))
      end if
   end subroutine set_number

   subroutine set_elements(self, address, attribute, kind, count, elements)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> The first of them, *host*
      type(c_ptr), intent(in) :: elements
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> The `cudnnBackendAttributeType_t` of the elements
      integer(c_int), intent(in) :: kind
      !> Number of elements
      integer, intent(in) :: count
      if (.not. self%ok()) return
      call self%check(self%dnn%backend_set_attribute(address, attribute, kind, int(count, c_int64_t), elements), &
         & self%name_of(address)//", attribute "//to_text(int(attribute)))
   end subroutine set_elements

   !> Fill descriptors that are made already, such as a heuristic's results; `count` of them are filled
   subroutine get_descriptors(self, address, attribute, values, count)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> Made already, of the type that the attribute has
      type(c_ptr), intent(in) :: values(:)
      !> How many of them are filled; 0 after an error
      integer, intent(out) :: count
      type(c_ptr), target :: elements(size(values))
      elements = values
      call self%get_elements(address, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, size(values), c_loc(elements), count)
   end subroutine get_descriptors

   !> The first of the enumerators that the attribute has
   subroutine get_enums(self, address, attribute, kind, values, count)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> The `cudnnBackendAttributeType_t` of the elements
      integer(c_int), intent(in) :: kind
      !> The enumerators; -1 behind the last one
      integer(c_int), intent(out) :: values(:)
      !> How many there are, at most the size of `values`; 0 after an error
      integer, intent(out) :: count
      integer(c_int), target :: elements(size(values))
      elements = -1_c_int
      call self%get_elements(address, attribute, kind, size(values), c_loc(elements), count)
      values = elements
   end subroutine get_enums

   integer(i8) function get_integer(self, address, attribute)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      integer(c_int64_t), target :: element
      integer :: count
      element = 0_c_int64_t
      call self%get_elements(address, attribute, CUDNN_TYPE_INT64, 1, c_loc(element), count)
      get_integer = element
   end function get_integer

   !> `count` is how many elements were written, at most `room`
   subroutine get_elements(self, address, attribute, kind, room, elements, count)
      class(graph_builder_type), intent(inout) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      !> Where they are written, *host*
      type(c_ptr), intent(in) :: elements
      !> A `cudnnBackendAttributeName_t`
      integer(c_int), intent(in) :: attribute
      !> The `cudnnBackendAttributeType_t` of the elements
      integer(c_int), intent(in) :: kind
      !> Elements that there is place for
      integer, intent(in) :: room
      !> How many were written, at most `room`; 0 after an error
      integer, intent(out) :: count
      integer(c_int64_t) :: there
      count = 0
      if (.not. self%ok()) return
      there = 0_c_int64_t
      call self%check(self%dnn%backend_get_attribute(address, attribute, kind, int(room, c_int64_t), there, &
         & elements), self%name_of(address)//", reading attribute "//to_text(int(attribute)))
      if (self%ok()) count = int(min(there, int(room, c_int64_t)))
   end subroutine get_elements

   !> What a descriptor was made as
   function name_of(self, address) result(what)
      class(graph_builder_type), intent(in) :: self
      !> Descriptor, *host*
      type(c_ptr), intent(in) :: address
      character(len=:), allocatable :: what
      integer :: i
      what = "a descriptor"
      do i = 1, size(self%made)
         if (c_associated(self%made(i)%address, address)) what = trim(self%made(i)%what)
      end do
   end function name_of

end module cnn_cuda_plans_graph_builder
