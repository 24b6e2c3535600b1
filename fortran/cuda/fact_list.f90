! SPDX-License-Identifier: MIT
!> Facts for a report, as lines of `name: value`.
module cnn_fact_list
   use cnn_error, only : error_type
   use cnn_shared_library, only : shared_library_type
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
      character(len=*), intent(in) :: name, value
      self%text = self%text//name//": "//value//new_line("a")
   end subroutine add

   !> Nothing where there is no error
   subroutine add_error(self, name, error)
      class(fact_list_type), intent(inout) :: self
      character(len=*), intent(in) :: name
      type(error_type), allocatable, intent(in) :: error
      if (allocated(error)) call self%add(name//" error", error%message)
   end subroutine add_error

   !> Of a library that was found, though it may be the wrong one
   subroutine add_path(self, name, library)
      class(fact_list_type), intent(inout) :: self
      character(len=*), intent(in) :: name
      type(shared_library_type), intent(in) :: library
      if (.not. allocated(library%path)) return
      if (index(library%path, "/") > 0) call self%add(name//" library", library%path)
   end subroutine add_path

end module cnn_fact_list
