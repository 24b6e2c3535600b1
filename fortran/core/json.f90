! SPDX-License-Identifier: MIT
!> Reader of JSON text (RFC 8259) into a flat list of paths and values.
!>
!> `{"layers": [{"name": "conv1", "stride": [2, 1]}]}` becomes
!>
!>     layers              array   "1"
!>     layers.0.name       string  "conv1"
!>     layers.0.stride     array   "2"
!>     layers.0.stride.0   number  "2"
!>     layers.0.stride.1   number  "1"
!>
!> which is all that a model description needs. Text is ASCII; `\u` escapes are refused.
module cnn_core_json
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : to_text
   implicit none
   private

   !> Deeper nesting and more values than any model description has; stop hostile text before the stack and
   !> the search through the list do
   integer, parameter :: max_depth = 32
   integer, parameter :: max_values = 20000

   integer, parameter :: kind_object = 1, kind_array = 2, kind_string = 3, kind_number = 4, kind_word = 5
   character(len=*), parameter :: kind_names(5) = [character(len=13) :: &
      & "an object", "an array", "a string", "a number", "true or false"]

   type :: entry_type
      character(len=:), allocatable :: path, value
      integer :: kind = 0
   end type entry_type

   !> A parsed document
   type, public :: json_type
      private
      type(entry_type), allocatable :: entries(:)
      integer :: used = 0
      character(len=:), allocatable :: text
      integer :: at = 1
   contains
      procedure :: parse
      procedure :: has
      procedure :: length
      procedure :: other_key
      procedure :: get_string
      procedure :: get_integer
      procedure :: get_logical
      procedure, private :: value, object, array, string, number, word
      procedure, private :: add, skip_blanks, peek, syntax_error, find, expect
   end type json_type

contains

   !> Read a whole document
   subroutine parse(self, text, error)
      !> The document; what it held before is dropped
      class(json_type), intent(inout) :: self
      !> JSON
      character(len=*), intent(in) :: text
      !> Where the text is no JSON, or past the limits on depth and number of values
      type(error_type), allocatable, intent(out) :: error
      self%text = text
      self%at = 1
      self%used = 0
      if (allocated(self%entries)) deallocate (self%entries)
      allocate (self%entries(64))
      call self%value("", 0, error)
      if (allocated(error)) return
      call self%skip_blanks()
      if (self%at <= len(self%text)) call self%syntax_error("the end of the text", error)
   end subroutine parse

   !> Is there a value at this path?
   logical function has(self, path)
      !> The document
      class(json_type), intent(in) :: self
      !> Keys and positions from the root, with dots between them, as layers.0.name
      character(len=*), intent(in) :: path
      has = self%find(path) > 0
   end function has

   !> Number of items of an array; -1 when there is no array at this path
   integer function length(self, path)
      !> The document
      class(json_type), intent(in) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      integer :: i
      length = -1
      i = self%find(path)
      if (i == 0) return
      if (self%entries(i)%kind == kind_array) read (self%entries(i)%value, *) length
   end function length

   !> A key of the object at this path that is not among `known`; empty when there is none
   function other_key(self, path, known) result(key)
      !> The document
      class(json_type), intent(in) :: self
      !> Path of the object
      character(len=*), intent(in) :: path
      !> Keys, padded with blanks
      character(len=*), intent(in) :: known(:)
      character(len=:), allocatable :: key
      character(len=:), allocatable :: prefix
      integer :: i
      prefix = join(path, "")
      do i = 1, self%used
         key = self%entries(i)%path
         if (len(key) <= len(prefix) .or. index(key, prefix) /= 1) cycle
         key = key(len(prefix) + 1:)
         if (index(key, ".") == 0 .and. all(known /= key)) return
      end do
      key = ""
   end function other_key

   subroutine get_string(self, path, value, error)
      !> The document
      class(json_type), intent(in) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      !> The string without quotes and escapes
      character(len=:), allocatable, intent(out) :: value
      !> No value there, or not a string
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      call self%expect(path, kind_string, i, error)
      if (allocated(error)) return
      value = self%entries(i)%value
   end subroutine get_string

   subroutine get_integer(self, path, value, error)
      !> The document
      class(json_type), intent(in) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      !> 0 where there is an error
      integer, intent(out) :: value
      !> No value there, or not an integer
      type(error_type), allocatable, intent(out) :: error
      integer :: i, status
      value = 0
      call self%expect(path, kind_number, i, error)
      if (allocated(error)) return
      if (verify(self%entries(i)%value, "-0123456789") > 0) then
         status = 1
      else
         read (self%entries(i)%value, *, iostat=status) value
      end if
      if (status /= 0) call fail(error, "model description: "//path//" is "// &
         & self%entries(i)%value//", expected an integer")
   end subroutine get_integer

   subroutine get_logical(self, path, value, error)
      !> The document
      class(json_type), intent(in) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      !> False where there is an error
      logical, intent(out) :: value
      !> No value there, or neither true nor false
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      value = .false.
      call self%expect(path, kind_word, i, error)
      if (allocated(error)) return
      value = self%entries(i)%value == "true"
      if (self%entries(i)%value == "null") call fail(error, "model description: "//path// &
         & " is null, expected true or false")
   end subroutine get_logical

   !> Index of a path, 0 when absent
   integer function find(self, path)
      !> The document
      class(json_type), intent(in) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      do find = 1, self%used
         if (self%entries(find)%path == path) return
      end do
      find = 0
   end function find

   !> Index of a path that must be there with this kind
   subroutine expect(self, path, kind, i, error)
      !> The document
      class(json_type), intent(in) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      !> One of the `kind_` codes
      integer, intent(in) :: kind
      !> Index of the entry; 0 where there is none
      integer, intent(out) :: i
      !> No value there, or one of another kind
      type(error_type), allocatable, intent(out) :: error
      i = self%find(path)
      if (i == 0) then
         call fail(error, "model description: "//path//" is missing, expected "//trim(kind_names(kind)))
      else if (self%entries(i)%kind /= kind) then
         call fail(error, "model description: "//path//" is "//trim(kind_names(self%entries(i)%kind))// &
            & ", expected "//trim(kind_names(kind)))
      end if
   end subroutine expect

   subroutine add(self, path, kind, value)
      !> The document
      class(json_type), intent(inout) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      !> Text of a string, number or word; number of items of an array; empty for an object
      character(len=*), intent(in) :: value
      !> One of the `kind_` codes
      integer, intent(in) :: kind
      type(entry_type), allocatable :: larger(:)
      if (self%used == size(self%entries)) then
         allocate (larger(2*self%used))
         larger(:self%used) = self%entries
         call move_alloc(larger, self%entries)
      end if
      self%used = self%used + 1
      self%entries(self%used)%path = path
      self%entries(self%used)%kind = kind
      self%entries(self%used)%value = value
   end subroutine add

   recursive subroutine value(self, path, depth, error)
      !> The document
      class(json_type), intent(inout) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      !> Nesting of the value, 0 for the root
      integer, intent(in) :: depth
      !> Where the text is no JSON, or nested too deep
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: text
      if (depth > max_depth) then
         call fail(error, "model description: nested deeper than "//to_text(max_depth)//" levels")
      else if (self%used >= max_values) then
         call fail(error, "model description: more than "//to_text(max_values)//" values")
      end if
      if (allocated(error)) return
      call self%skip_blanks()
      select case (self%peek())
       case ("{")
         call self%object(path, depth, error)
       case ("[")
         call self%array(path, depth, error)
       case ('"')
         call self%string(text, error)
         if (allocated(error)) return
         call self%add(path, kind_string, text)
       case ("-", "0":"9")
         call self%number(path)
       case default
         call self%word(path, error)
      end select
   end subroutine value

   recursive subroutine object(self, path, depth, error)
      !> The document
      class(json_type), intent(inout) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      !> Nesting of the value, 0 for the root
      integer, intent(in) :: depth
      !> Where the text is no JSON, or nested too deep
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: key
      call self%add(path, kind_object, "")
      self%at = self%at + 1
      call self%skip_blanks()
      if (self%peek() == "}") then
         self%at = self%at + 1
         return
      end if
      do
         call self%skip_blanks()
         call self%string(key, error)
         if (allocated(error)) return
         if (scan(key, ".") > 0) then
            call fail(error, "model description: the key '"//key//"' has a dot, which no key has")
         else if (self%has(join(path, key))) then
            call fail(error, "model description: the key '"//key//"' stands twice in one object")
         end if
         if (allocated(error)) return
         call self%skip_blanks()
         if (self%peek() /= ":") then
            call self%syntax_error("':'", error)
            return
         end if
         self%at = self%at + 1
         call self%value(join(path, key), depth + 1, error)
         if (allocated(error)) return
         call self%skip_blanks()
         if (self%peek() /= ",") exit
         self%at = self%at + 1
      end do
      if (self%peek() /= "}") then
         call self%syntax_error("',' or '}'", error)
         return
      end if
      self%at = self%at + 1
   end subroutine object

   recursive subroutine array(self, path, depth, error)
      !> The document
      class(json_type), intent(inout) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      !> Nesting of the value, 0 for the root
      integer, intent(in) :: depth
      !> Where the text is no JSON, or nested too deep
      type(error_type), allocatable, intent(out) :: error
      integer :: items, mine
      call self%add(path, kind_array, "0")
      mine = self%used
      items = 0
      self%at = self%at + 1
      call self%skip_blanks()
      if (self%peek() == "]") then
         self%at = self%at + 1
         return
      end if
      do
         call self%value(join(path, to_text(items)), depth + 1, error)
         if (allocated(error)) return
         items = items + 1
         call self%skip_blanks()
         if (self%peek() /= ",") exit
         self%at = self%at + 1
      end do
      if (self%peek() /= "]") then
         call self%syntax_error("',' or ']'", error)
         return
      end if
      self%at = self%at + 1
      self%entries(mine)%value = to_text(items)
   end subroutine array

   subroutine string(self, text, error)
      !> The document
      class(json_type), intent(inout) :: self
      !> The string without quotes and escapes
      character(len=:), allocatable, intent(out) :: text
      !> Not a string of plain ASCII
      type(error_type), allocatable, intent(out) :: error
      character(len=1) :: c
      text = ""
      if (self%peek() /= '"') then
         call self%syntax_error("a string", error)
         return
      end if
      do
         self%at = self%at + 1
         if (self%at > len(self%text)) exit
         c = self%text(self%at:self%at)
         if (c == '"') then
            self%at = self%at + 1
            return
         end if
         if (iachar(c) < 32 .or. iachar(c) > 126) exit
         if (c == "\") then
            self%at = self%at + 1
            c = self%peek()
            if (scan(c, '"\/') == 0) exit
         end if
         text = text//c
      end do
      call self%syntax_error("plain ASCII text closed by a quote", error)
   end subroutine string

   subroutine number(self, path)
      !> The document
      class(json_type), intent(inout) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      integer :: first, n
      first = self%at
      n = verify(self%text(first:), "+-.0123456789eE")
      self%at = merge(len(self%text) + 1, first + n - 1, n == 0)
      call self%add(path, kind_number, self%text(first:self%at - 1))
   end subroutine number

   subroutine word(self, path, error)
      !> The document
      class(json_type), intent(inout) :: self
      !> Keys and positions from the root, with dots between them
      character(len=*), intent(in) :: path
      !> Neither true, false nor null
      type(error_type), allocatable, intent(out) :: error
      character(len=5), parameter :: words(3) = [character(len=5) :: "true", "false", "null"]
      integer :: i, last
      do i = 1, size(words)
         last = self%at + len_trim(words(i)) - 1
         if (last > len(self%text)) cycle
         if (self%text(self%at:last) /= trim(words(i))) cycle
         call self%add(path, kind_word, trim(words(i)))
         self%at = last + 1
         return
      end do
      call self%syntax_error("a value", error)
   end subroutine word

   subroutine skip_blanks(self)
      !> The document
      class(json_type), intent(inout) :: self
      integer :: n
      if (self%at > len(self%text)) return
      n = verify(self%text(self%at:), " "//achar(9)//achar(10)//achar(13))
      self%at = merge(len(self%text) + 1, self%at + n - 1, n == 0)
   end subroutine skip_blanks

   !> The next character; NUL at the end of the text
   character(len=1) function peek(self)
      !> The document
      class(json_type), intent(in) :: self
      peek = achar(0)
      if (self%at <= len(self%text)) peek = self%text(self%at:self%at)
   end function peek

   subroutine syntax_error(self, expected, error)
      !> The document
      class(json_type), intent(in) :: self
      !> What should stand where the reader is
      character(len=*), intent(in) :: expected
      !> Says so, with the position in the text
      type(error_type), allocatable, intent(out) :: error
      call fail(error, "model description: not JSON at character "//to_text(self%at)//", expected "//expected)
   end subroutine syntax_error

   pure function join(path, key) result(joined)
      !> Path of an object or array; empty for the root
      character(len=*), intent(in) :: path
      !> A key, or a position from 0
      character(len=*), intent(in) :: key
      character(len=:), allocatable :: joined
      joined = key
      if (len(path) > 0) joined = path//"."//key
   end function join

end module cnn_core_json
