! SPDX-License-Identifier: MIT
!> Several inputs of a network, which lie one behind the other in one array (numbers, n), by their names.
!>
!>     type(inputs_type) :: inputs
!>     real(sp) :: x(64, 64, 1, 2), t(2), both(64*64 + 1, 2)
!>
!>     call inputs%add("x", [64, 64, 1])
!>     call inputs%add("t")
!>     call inputs%pack("x", x, both, error)
!>     if (.not. allocated(error)) call inputs%pack("t", t, both, error)
!>
!> `network_type%add_inputs` gives a network that is built layers of these names, `network_type%get_inputs` says which
!> ones a network from a file has.
module cnn_library_inputs
   use, intrinsic :: iso_c_binding, only : c_f_pointer
   use, intrinsic :: iso_fortran_env, only : int8
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : bytes_of, dp, i8, sp
   use cnn_core_text, only : for_fortran, reader, shape_list, to_text
   use cnn_library_any_kind, only : integers_of
   use cnn_library_arrays, only : array_type, give_back, take
   implicit none
   private

   public :: read_inputs

   type :: input_type
      character(len=:), allocatable :: name
      !> Of one image, as Fortran's `shape`; none are one number
      integer, allocatable :: extents(:)
   end type input_type

   type, public :: inputs_type
      private
      type(input_type), allocatable :: items(:)
   contains
      procedure, public :: add
      procedure, public :: count => count_inputs
      procedure, public :: name => name_of
      procedure, public :: extents => extents_of
      procedure, public :: first
      procedure, public :: numbers
      procedure :: write_text
      !> One of them into its place
      generic, public :: pack => pack_sp, pack_dp
      !> One of them out of its place, as of a gradient of the input
      generic, public :: unpack => unpack_sp, unpack_dp
      procedure, private :: pack_sp, pack_dp, unpack_sp, unpack_dp, copy, place
   end type inputs_type

contains

   !> The next one, behind those before
   subroutine add(self, name, extents)
      !> Those so far
      class(inputs_type), intent(inout) :: self
      !> As a layer may be named
      character(len=*), intent(in) :: name
      !> Of one image, as Fortran's `shape`, of any kind of integer; one number where they are not given
      class(*), intent(in), optional :: extents(:)
      type(input_type), allocatable :: larger(:)
      integer :: n
      n = self%count()
      allocate (larger(n + 1))
      if (n > 0) larger(:n) = self%items
      larger(n + 1)%name = name
      if (present(extents)) then
         larger(n + 1)%extents = integers_of(extents)
      else
         allocate (larger(n + 1)%extents(0))
      end if
      call move_alloc(larger, self%items)
   end subroutine add

   !> How many there are
   pure integer function count_inputs(self)
      !> All of them
      class(inputs_type), intent(in) :: self
      count_inputs = 0
      if (allocated(self%items)) count_inputs = size(self%items)
   end function count_inputs

   pure integer function name_length(self, number)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> Any
      integer, intent(in) :: number
      name_length = 0
      if (number >= 1 .and. number <= self%count()) name_length = len(self%items(number)%name)
   end function name_length

   !> What one is called
   pure function name_of(self, number) result(name)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> From 1 to their count; of any other there is no name
      integer, intent(in) :: number
      character(len=name_length(self, number)) :: name
      name = ""
      if (number >= 1 .and. number <= self%count()) name = self%items(number)%name
   end function name_of

   !> The shape of one image; none where it is one number
   pure function extents_of(self, number) result(extents)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> From 1 to their count; of any other there are none
      integer, intent(in) :: number
      integer, allocatable :: extents(:)
      allocate (extents(0))
      if (number >= 1 .and. number <= self%count()) extents = self%items(number)%extents
   end function extents_of

   !> Where one begins among the numbers of an image, from 1; of one more than there are, behind the last
   pure integer function first(self, number)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> From 1 to their count + 1
      integer, intent(in) :: number
      integer :: i
      first = 1
      do i = 1, min(number - 1, self%count())
         first = first + product(self%items(i)%extents)
      end do
   end function first

   !> How many numbers one image has
   pure integer function numbers(self)
      !> All of them
      class(inputs_type), intent(in) :: self
      numbers = self%first(self%count() + 1) - 1
   end function numbers

   !> As exchange files have them: names, and shapes in torch's order, `x=1,64,64 t=`
   pure subroutine write_text(self, text)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> Not a function: see cnn_core_text
      character(len=:), allocatable, intent(out) :: text
      integer :: i, j
      text = ""
      do i = 1, self%count()
         if (i > 1) text = text//" "
         text = text//self%items(i)%name//"="
         do j = size(self%items(i)%extents), 1, -1
            text = text//to_text(self%items(i)%extents(j))
            if (j > 1) text = text//","
         end do
      end do
   end subroutine write_text

   !> Those of a text that `write_text` has written, or another program
   subroutine read_inputs(text, inputs, error)
      !> Names, `=`, and numbers with commas between them, each; blanks between them
      character(len=*), intent(in) :: text
      !> What it says
      type(inputs_type), intent(out) :: inputs
      !> It says something else
      type(error_type), allocatable, intent(out) :: error
      integer, allocatable :: extents(:)
      integer :: first, last, equals, i, stat
      last = 0
      do
         first = last + verify(text(last + 1:), " ")
         if (first == last) return
         last = first + index(text(first:)//" ", " ") - 2
         equals = first + index(text(first:last)//"=", "=") - 1
         associate (numbers => text(min(equals, last) + 1:last))
            stat = merge(0, 1, equals > first .and. equals <= last .and. verify(numbers, "0123456789,") == 0)
            allocate (extents(merge(0, 1 + count([(numbers(i:i) == ",", i=1, len(numbers))]), len(numbers) == 0)))
            if (stat == 0 .and. size(extents) > 0) read (numbers, *, iostat=stat) extents
            if (stat == 0) stat = count(extents < 1)
         end associate
         if (stat /= 0) then
            call fail(error, "inputs: '"//text(first:last)// &
               & "', expected a name, =, and numbers from 1 on with commas between them")
            return
         end if
         call inputs%add(text(first:equals - 1), extents(size(extents):1:-1))
         deallocate (extents)
      end do
   end subroutine read_inputs

   subroutine pack_sp(self, name, values, packed, error)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> Of the one that is copied
      character(len=*), intent(in) :: name
      !> Images of its shape
      real(sp), target, intent(in) :: values(..)
      !> Where all lie, (numbers, n): its part is overwritten
      real(sp), target, intent(inout) :: packed(:, :)
      !> No such input, or an array of another shape
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_, packed_
      call take(values, values_)
      call take(packed, packed_)
      call self%copy(name, values_, packed_, .true., error)
      call give_back(packed_, packed)
   end subroutine pack_sp

   subroutine pack_dp(self, name, values, packed, error)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> Of the one that is copied
      character(len=*), intent(in) :: name
      !> Images of its shape
      real(dp), target, intent(in) :: values(..)
      !> Where all lie, (numbers, n): its part is overwritten
      real(dp), target, intent(inout) :: packed(:, :)
      !> As of `pack_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_, packed_
      call take(values, values_)
      call take(packed, packed_)
      call self%copy(name, values_, packed_, .true., error)
      call give_back(packed_, packed)
   end subroutine pack_dp

   subroutine unpack_sp(self, name, packed, values, error)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> Of the one that is copied
      character(len=*), intent(in) :: name
      !> Where all lie, (numbers, n)
      real(sp), target, intent(in) :: packed(:, :)
      !> Images of its shape, is overwritten
      real(sp), target, intent(inout) :: values(..)
      !> As of `pack_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_, packed_
      call take(values, values_)
      call take(packed, packed_)
      call self%copy(name, values_, packed_, .false., error)
      call give_back(values_, values)
   end subroutine unpack_sp

   subroutine unpack_dp(self, name, packed, values, error)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> Of the one that is copied
      character(len=*), intent(in) :: name
      !> Where all lie, (numbers, n)
      real(dp), target, intent(in) :: packed(:, :)
      !> Images of its shape, is overwritten
      real(dp), target, intent(inout) :: values(..)
      !> As of `pack_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_, packed_
      call take(values, values_)
      call take(packed, packed_)
      call self%copy(name, values_, packed_, .false., error)
      call give_back(values_, values)
   end subroutine unpack_dp

   !> One of them into the array of all, or out of it
   subroutine copy(self, name, values, packed, inward, error)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> Of the one that is copied
      character(len=*), intent(in) :: name
      !> Its own array
      type(array_type), intent(in) :: values
      !> That of all, of the same kind
      type(array_type), intent(in) :: packed
      !> Whether into the array of all
      logical, intent(in) :: inward
      !> As of `pack_sp`
      type(error_type), allocatable, intent(out) :: error
      integer(int8), pointer :: part(:, :), whole(:, :)
      integer(i8) :: bytes, images
      integer :: first, last
      call self%place(name, values, packed%tensor%extent(:2), first, last, error)
      if (allocated(error)) return
      bytes = bytes_of(packed%tensor%dtype)
      images = packed%tensor%extent(2)
      call c_f_pointer(values%tensor%address, part, [(last - first + 1)*bytes, images])
      call c_f_pointer(packed%tensor%address, whole, [packed%tensor%extent(1)*bytes, images])
      associate (there => whole((first - 1)*bytes + 1:last*bytes, :))
         if (inward) then
            there = part
         else
            part = there
         end if
      end associate
   end subroutine copy

   !> Where the numbers of one lie in each column
   subroutine place(self, name, array, packed, first, last, error)
      !> All of them
      class(inputs_type), intent(in) :: self
      !> Of the one that is meant
      character(len=*), intent(in) :: name
      !> The caller's, of that input
      type(array_type), intent(in) :: array
      !> Shape of the array where all lie
      integer, intent(in) :: packed(2)
      !> From 1
      integer, intent(out) :: first
      !> From first on
      integer, intent(out) :: last
      !> No such input, or an array of another shape
      type(error_type), allocatable, intent(out) :: error
      integer, allocatable :: expected(:)
      integer :: i, before
      first = 1
      last = 0
      do i = 1, self%count()
         if (self%items(i)%name == name) exit
      end do
      if (i > self%count()) then
         call fail(error, "inputs: there is no "//name)
         return
      end if
      expected = [self%items(i)%extents, packed(2)]
      first = self%first(i)
      last = self%first(i + 1) - 1
      before = reader
      reader = for_fortran
      if (packed(1) /= self%numbers()) then
         call fail(error, "inputs: packed has the shape "//shape_list(packed)//", expected "// &
            & shape_list([self%numbers(), packed(2)]))
      else if (array%rank /= size(expected) .or. .not. array%tensor%is_allocated()) then
         call fail(error, "input "//name//": "//to_text(array%rank)//" dimensions, expected "//shape_list(expected))
      else if (any(array%tensor%extent(:array%rank) /= expected)) then
         call fail(error, "input "//name//": the shape "//array%shape_text()//", expected "//shape_list(expected))
      end if
      reader = before
   end subroutine place

end module cnn_library_inputs
