! SPDX-License-Identifier: MIT
!> The hyperparameters of a node, as an exchange file of version 2 has them: names with numbers.
module cnn_operations_attributes
   use, intrinsic :: ieee_arithmetic, only : ieee_is_nan, ieee_quiet_nan, ieee_value
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_text, only : to_text
   implicit none
   private

   public :: attributes_from

   !> Largest integer of a hyperparameter: the pixels of an image of 4096 x 4096, the voxels of a volume of 256**3
   integer, parameter, public :: largest = 2**24
   !> The same of windows, steps and borders, of which places are counted
   integer, parameter :: widest = 65536

   !> A name, and the numbers that it stands for
   type, public :: attribute_type
      character(len=:), allocatable :: name
      real(dp), allocatable :: numbers(:)
      !> Whether an operation has asked for it
      logical :: is_known = .false.
   end type attribute_type

   !> All of one node
   type, public :: attributes_type
      !> The node's name, for messages, and what it is a name of
      character(len=:), allocatable :: node
      character(len=5) :: what = "layer"
      type(attribute_type), allocatable :: items(:)
   contains
      procedure :: get_integer
      procedure :: get_flag
      procedure :: get_index
      procedure :: get_integers
      procedure :: get_list
      procedure :: get_real
      procedure :: get_reals
      procedure :: has
      procedure :: check_known
      procedure, private :: find
   end type attributes_type

contains

   !> The hyperparameters that a text says: `kernel_size=3,3 padding=1,1`
   type(attributes_type) function attributes_from(text) result(given)
      !> A name, `=` and numbers with commas between them, each; blanks between them
      character(len=*), intent(in) :: text
      type(attribute_type) :: item
      integer :: first, last, equals
      allocate (given%items(0))
      last = 0
      do
         first = last + verify(text(last + 1:), " ")
         if (first == last) return
         last = first + index(text(first:)//" ", " ") - 2
         equals = first + index(text(first:last)//"=", "=") - 1
         item%name = text(first:equals - 1)
         item%numbers = numbers_of(text(min(equals, last) + 1:last))
         given%items = [given%items, item]
      end do
   end function attributes_from

   !> Numbers with commas between them; what is none is NaN, which no hyperparameter may be
   function numbers_of(text) result(numbers)
      !> One or more
      character(len=*), intent(in) :: text
      real(dp), allocatable :: numbers(:)
      integer :: i, stat
      allocate (numbers(count([(text(i:i) == ",", i=1, len(text))]) + 1))
      read (text, *, iostat=stat) numbers
      if (stat /= 0) numbers = ieee_value(0.0_dp, ieee_quiet_nan)
   end function numbers_of

   !> An integer from 1 to `largest`
   subroutine get_integer(self, name, value, error, default)
      class(attributes_type), intent(inout) :: self
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      !> What was found
      integer, intent(out) :: value
      !> Missing without a default, or out of its range
      type(error_type), allocatable, intent(out) :: error
      !> Value where it is not there
      integer, intent(in), optional :: default
      integer :: i
      value = 1
      call self%find(name, present(default), i, error)
      if (allocated(error)) return
      if (i == 0) then
         if (present(default)) value = default
      else if (are_integers(self%items(i)%numbers, 1, 1, largest)) then
         value = nint(self%items(i)%numbers(1))
      else
         call refuse(self, i, "an integer from 1 to "//to_text(largest), error)
      end if
   end subroutine get_integer

   !> An integer from -`largest` to `largest`
   subroutine get_index(self, name, value, error, default)
      class(attributes_type), intent(inout) :: self
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      !> What was found
      integer, intent(out) :: value
      !> Out of its range
      type(error_type), allocatable, intent(out) :: error
      !> Value where it is not there
      integer, intent(in) :: default
      integer, allocatable :: found(:)
      value = default
      if (.not. self%has(name)) return
      call self%get_list(name, found, error, 1, -largest, largest)
      if (.not. allocated(error)) value = found(1)
   end subroutine get_index

   !> 0 or 1
   subroutine get_flag(self, name, value, error, default)
      class(attributes_type), intent(inout) :: self
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      !> What was found
      logical, intent(out) :: value
      !> Neither 0 nor 1
      type(error_type), allocatable, intent(out) :: error
      !> Value where it is not there
      logical, intent(in) :: default
      integer :: i
      value = default
      call self%find(name, .true., i, error)
      if (i == 0) return
      if (are_integers(self%items(i)%numbers, 1, 0, 1)) then
         value = self%items(i)%numbers(1) > 0.0_dp
         return
      end if
      call refuse(self, i, "0 or 1", error)
   end subroutine get_flag

   !> Two integers (height, width), three (depth, height, width), four (left, right, top, bottom), or one that may be 0
   subroutine get_integers(self, name, value, error, lowest, default)
      class(attributes_type), intent(inout) :: self
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      !> As many as are wanted
      integer, intent(out) :: value(:)
      !> Missing without a default, or out of its range
      type(error_type), allocatable, intent(out) :: error
      !> The smallest value that is allowed
      integer, intent(in) :: lowest
      !> Value of all where it is not there
      integer, intent(in), optional :: default
      character(len=:), allocatable :: sides
      integer :: i
      value = lowest
      call self%find(name, present(default), i, error)
      if (allocated(error)) return
      if (i == 0) then
         if (present(default)) value = default
      else if (are_integers(self%items(i)%numbers, size(value), lowest, widest)) then
         value = nint(self%items(i)%numbers)
      else
         sides = "(height, width), integers"
         if (size(value) == 1) sides = "an integer"
         if (size(value) == 3) sides = "(depth, height, width), integers"
         if (size(value) == 4) sides = "(left, right, top, bottom), integers"
         call refuse(self, i, sides//" from "//to_text(lowest)//" to "//to_text(widest), error)
      end if
   end subroutine get_integers

   !> A few integers, as many as there are
   subroutine get_list(self, name, value, error, most, lowest, highest)
      class(attributes_type), intent(inout) :: self
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      !> What was found
      integer, allocatable, intent(out) :: value(:)
      type(error_type), allocatable, intent(out) :: error
      !> Most integers
      integer, intent(in) :: most
      !> The smallest value that is allowed; 1
      integer, intent(in), optional :: lowest
      !> The largest value that is allowed; `largest`
      integer, intent(in), optional :: highest
      character(len=:), allocatable :: integers
      integer :: i, first, last
      first = 1
      if (present(lowest)) first = lowest
      last = largest
      if (present(highest)) last = highest
      call self%find(name, .false., i, error)
      if (allocated(error)) return
      associate (numbers => self%items(i)%numbers)
         if (size(numbers) <= most .and. are_integers(numbers, size(numbers), first, last)) then
            allocate (value, source=nint(numbers))
         else
            integers = "1 to "//to_text(most)//" integers"
            if (most == 1) integers = "an integer"
            call refuse(self, i, integers//" from "//to_text(first)//" to "//to_text(last), error)
         end if
      end associate
   end subroutine get_list

   !> A finite number from 0 on; with `signed` any number
   subroutine get_real(self, name, value, error, default, signed)
      class(attributes_type), intent(inout) :: self
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      !> What was found
      real(dp), intent(out) :: value
      !> Missing without a default, negative, or not finite
      type(error_type), allocatable, intent(out) :: error
      !> Value where it is not there
      real(dp), intent(in), optional :: default
      !> Whether it may be negative or infinite
      logical, intent(in), optional :: signed
      logical :: any_number
      integer :: i
      any_number = .false.
      if (present(signed)) any_number = signed
      value = 0.0_dp
      if (present(default)) value = default
      call self%find(name, present(default), i, error)
      if (allocated(error) .or. i == 0) return
      if (size(self%items(i)%numbers) == 1) then
         value = self%items(i)%numbers(1)
         if (value >= 0.0_dp .and. value <= huge(value)) return
         if (any_number .and. .not. ieee_is_nan(value)) return
      end if
      call refuse(self, i, trim(merge("a number          ", "a number from 0 on", any_number)), error)
   end subroutine get_real

   !> Finite numbers from 0 on, as many as there are
   subroutine get_reals(self, name, values, error)
      class(attributes_type), intent(inout) :: self
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      !> None where it is not there
      real(dp), allocatable, intent(out) :: values(:)
      !> One that is negative, or not finite
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      allocate (values(0))
      call self%find(name, .true., i, error)
      if (allocated(error) .or. i == 0) return
      values = self%items(i)%numbers
      if (.not. all(values >= 0.0_dp .and. values <= huge(values))) call refuse(self, i, "numbers from 0 on", error)
   end subroutine get_reals

   !> An attribute for which no operation has asked might change what it computes: it is refused
   subroutine check_known(self, error)
      class(attributes_type), intent(in) :: self
      !> Names the first
      type(error_type), allocatable, intent(out) :: error
      integer :: i, j
      do i = 1, size(self%items)
         if (self%items(i)%is_known) cycle
         if (any([(self%items(j)%name == self%items(i)%name .and. self%items(j)%is_known, j=1, size(self%items))])) then
            call fail(error, "model: "//trim(self%what)//" "//self%node//" has the attribute '"//self%items(i)%name// &
               & "' twice, expected once")
            return
         end if
         call fail(error, "model: "//trim(self%what)//" "//self%node//" has the unknown attribute '"// &
            & self%items(i)%name//"'")
         return
      end do
   end subroutine check_known

   !> Whether it is there
   pure logical function has(self, name)
      class(attributes_type), intent(in) :: self
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      integer :: i
      has = any([(self%items(i)%name == name, i=1, size(self%items))])
   end function has

   !> The position of an attribute; 0 where it is not there
   subroutine find(self, name, optional, i, error)
      class(attributes_type), intent(inout) :: self
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      !> Whether it may be missing
      logical, intent(in) :: optional
      !> From 1
      integer, intent(out) :: i
      !> It is missing
      type(error_type), allocatable, intent(out) :: error
      do i = size(self%items), 1, -1
         if (self%items(i)%name /= name) cycle
         self%items(i)%is_known = .true.
         return
      end do
      i = 0
      if (.not. optional) call fail(error, "model: "//trim(self%what)//" "//self%node//" has no "//name)
   end subroutine find

   !> So many integers of that range
   pure logical function are_integers(numbers, count, lowest, highest)
      !> Any
      real(dp), intent(in) :: numbers(:)
      !> How many there shall be
      integer, intent(in) :: count
      !> The smallest that is allowed
      integer, intent(in) :: lowest
      !> The largest
      integer, intent(in) :: highest
      are_integers = size(numbers) == count .and. all(numbers >= lowest .and. numbers <= highest)
      if (are_integers) are_integers = all(abs(numbers - anint(numbers)) <= 0.0_dp)
   end function are_integers

   subroutine refuse(self, i, expected, error)
      class(attributes_type), intent(in) :: self
      !> Position of the attribute
      integer, intent(in) :: i
      !> What it may be
      character(len=*), intent(in) :: expected
      !> What was found
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: found
      integer :: j
      found = ""
      do j = 1, min(size(self%items(i)%numbers), 4)
         if (j > 1) found = found//", "
         found = found//to_text(self%items(i)%numbers(j))
      end do
      call fail(error, "model: "//trim(self%what)//" "//self%node//" has "//self%items(i)%name//" "//found// &
         & ", expected "//expected)
   end subroutine refuse

end module cnn_operations_attributes
