! SPDX-License-Identifier: MIT
!> Libraries that are looked for at run time, so that one build serves machines with and without them.
!>
!>     call library%open(path, error)
!>     call c_f_procpointer(library%symbol("cudaMalloc"), malloc)
!>     call library%check_symbols(error)
!>
!> An opened library stays in the process: CUDA's libraries do not bear being closed.
!> Source.  POSIX dlopen(3), dlsym(3); dladdr(3).
module cnn_cuda_bindings_shared_library
   use, intrinsic :: iso_c_binding, only : c_associated, c_char, c_f_pointer, c_funptr, c_int, c_null_char, &
      & c_null_funptr, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type, fail
   implicit none
   private

   public :: c_text

   !> All symbols at once: a library that misses another one is found out here, not in the middle of a step
   integer(c_int), parameter :: rtld_now = 2
   !> Only what the process has already; the number is that of Linux
   integer(c_int), parameter :: rtld_noload = 4

   type, public :: shared_library_type
      !> What it was opened by, then where it lies
      character(len=:), allocatable :: path
      type(c_ptr), private :: handle = c_null_ptr
      !> Symbols that were asked for in vain
      character(len=:), allocatable, private :: missing
   contains
      procedure :: open => open_library
      procedure :: is_open
      procedure :: forget
      procedure :: lies_at
      procedure :: rival
      procedure :: symbol
      procedure :: check_symbols
   end type shared_library_type

   !> `Dl_info`
   type, bind(C) :: dl_info_type
      type(c_ptr) :: file = c_null_ptr, base = c_null_ptr, symbol = c_null_ptr, address = c_null_ptr
   end type dl_info_type

   interface
      function c_dlopen(path, mode) result(handle) bind(C, name="dlopen")
         import :: c_char, c_int, c_ptr
         implicit none
         !> A path, or a name that the loader looks for; ended by NUL
         character(kind=c_char), intent(in) :: path(*)
         !> Bits RTLD_...
         integer(c_int), value :: mode
         type(c_ptr) :: handle
      end function c_dlopen
      function c_dlsym(handle, name) result(address) bind(C, name="dlsym")
         import :: c_char, c_funptr, c_ptr
         implicit none
         !> What `c_dlopen` gave
         type(c_ptr), value :: handle
         !> Name of a function, ended by NUL
         character(kind=c_char), intent(in) :: name(*)
         type(c_funptr) :: address
      end function c_dlsym
      function c_dlerror() result(text) bind(C, name="dlerror")
         import :: c_ptr
         implicit none
         type(c_ptr) :: text
      end function c_dlerror
      function c_dladdr(address, info) result(found) bind(C, name="dladdr")
         import :: c_funptr, c_int, dl_info_type
         implicit none
         !> Address of a function
         type(c_funptr), value :: address
         !> Which file it came from, and its nearest symbol
         type(dl_info_type), intent(out) :: info
         integer(c_int) :: found
      end function c_dladdr
      function c_strlen(text) result(length) bind(C, name="strlen")
         import :: c_ptr, c_size_t
         implicit none
         !> C string, ended by NUL
         type(c_ptr), value :: text
         integer(c_size_t) :: length
      end function c_strlen
   end interface

contains

   !> By its path, or by its name alone wherever the loader looks; the error is the loader's own sentence
   subroutine open_library(self, path, error)
      class(shared_library_type), intent(inout) :: self
      !> Path of the library, or its name alone
      character(len=*), intent(in) :: path
      !> What the loader says
      type(error_type), allocatable, intent(out) :: error
      self%path = path
      self%missing = ""
      self%handle = c_dlopen(path//c_null_char, rtld_now)
      if (.not. c_associated(self%handle)) call fail(error, c_text(c_dlerror()))
   end subroutine open_library

   logical function is_open(self)
      class(shared_library_type), intent(in) :: self
      is_open = c_associated(self%handle)
   end function is_open

   !> As if it had not been opened: it turned out to be the wrong one
   subroutine forget(self)
      class(shared_library_type), intent(inout) :: self
      self%handle = c_null_ptr
   end subroutine forget

   !> Is this the file of the library, under whatever name?
   logical function lies_at(self, path)
      class(shared_library_type), intent(in) :: self
      !> Path of a file; nothing is opened that is not open yet
      character(len=*), intent(in) :: path
      lies_at = .false.
      if (self%is_open()) lies_at = c_associated(c_dlopen(path//c_null_char, ior(rtld_now, rtld_noload)), self%handle)
   end function lies_at

   !> Where another library of this name lies that the process opened earlier; empty when there is none
   function rival(self, name, function) result(path)
      class(shared_library_type), intent(in) :: self
      !> A file name without a folder, such as libcudnn.so.9
      character(len=*), intent(in) :: name
      !> One that every such library has
      character(len=*), intent(in) :: function
      character(len=:), allocatable :: path
      type(c_ptr) :: first
      path = ""
      first = c_dlopen(name//c_null_char, ior(rtld_now, rtld_noload))
      if (.not. c_associated(first) .or. c_associated(first, self%handle)) return
      path = path_of(c_dlsym(first, function//c_null_char), name)
   end function rival

   !> The address of a function; `check_symbols` tells of those that are missing
   function symbol(self, name) result(address)
      class(shared_library_type), intent(inout) :: self
      !> Name of a function
      character(len=*), intent(in) :: name
      type(c_funptr) :: address
      address = c_null_funptr
      if (self%is_open()) address = c_dlsym(self%handle, name//c_null_char)
      if (.not. c_associated(address)) then
         self%missing = self%missing//" "//name
      else if (index(self%path, "/") == 0) then
         self%path = path_of(address, self%path)
      end if
   end function symbol

   !> An error that names every symbol asked for in vain; the library then counts as not opened
   subroutine check_symbols(self, error)
      class(shared_library_type), intent(inout) :: self
      !> Names those that it lacks
      type(error_type), allocatable, intent(out) :: error
      if (len(self%missing) == 0) return
      call self%forget()
      call fail(error, self%path//": these functions are missing:"//self%missing)
   end subroutine check_symbols

   !> The file that a function came from, `name` where the loader does not tell
   function path_of(address, name) result(path)
      !> Address of a function
      type(c_funptr), intent(in) :: address
      !> What is given where the loader does not know
      character(len=*), intent(in) :: name
      character(len=:), allocatable :: path
      type(dl_info_type) :: info
      path = name
      if (c_dladdr(address, info) /= 0) path = c_text(info%file)
   end function path_of

   !> A C string as Fortran text; empty for a null pointer
   function c_text(address) result(text)
      !> C string, *host*, ended by NUL; may be null
      type(c_ptr), intent(in) :: address
      character(len=:), allocatable :: text
      character(kind=c_char), pointer :: letters(:)
      integer :: i, length
      text = ""
      if (.not. c_associated(address)) return
      length = int(c_strlen(address))
      call c_f_pointer(address, letters, [length])
      text = repeat(" ", length)
      do i = 1, length
         text(i:i) = letters(i)
      end do
   end function c_text

end module cnn_cuda_bindings_shared_library
