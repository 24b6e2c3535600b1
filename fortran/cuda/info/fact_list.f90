! SPDX-License-Identifier: MIT
!> Facts for a report, as lines of `name: value`.
module cnn_cuda_info_fact_list
   use cnn_core_error, only : error_type
   use cnn_cuda_bindings_shared_library, only : shared_library_type
   implicit none
   private

   type, public :: fact_list_type
      character(len=:), allocatable :: text
   contains
      procedure :: add
      procedure :: add_error
      procedure :: add_path
   end type fact_list_type

contains

   subroutine add(self, name, value)
      class(fact_list_type), intent(inout) :: self
      !> Name of the fact
      character(len=*), intent(in) :: name
      !> On one line
      character(len=*), intent(in) :: value
      self%text = self%text//name//": "//value//new_line("a")
   end subroutine add

   !> Nothing where there is no error
   subroutine add_error(self, name, error)
      class(fact_list_type), intent(inout) :: self
      !> Name of what failed
      character(len=*), intent(in) :: name
      !> May be not allocated
      type(error_type), allocatable, intent(in) :: error
      if (allocated(error)) call self%add(name//" error", error%message)
   end subroutine add_error

   !> Of a library that was found, though it may be the wrong one
   subroutine add_path(self, name, library)
      class(fact_list_type), intent(inout) :: self
      !> Name of the library, as in "cuDNN"
      character(len=*), intent(in) :: name
      !> One that was looked for
      type(shared_library_type), intent(in) :: library
      if (.not. allocated(library%path)) return
      if (index(library%path, "/") > 0) call self%add(name//" library", library%path)
   end subroutine add_path

end module cnn_cuda_info_fact_list
