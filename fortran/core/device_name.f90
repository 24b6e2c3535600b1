! SPDX-License-Identifier: MIT
!> The name of a device with its options, as one text: what a user writes after `--device`.
!>
!>     cpu
!>     cuda:1,math=tf32,algorithm=measured,deterministic=no,workspace=512,transforms=yes
!>
!> math           fp32 (no tensor cores), tf32, fp16 or bf16: how float32 operands of a convolution are multiplied;
!>                sums are float32 in all of them
!> algorithm      heuristic (cuDNN's own choice) or measured (all are tried once for each shape, and the choice is kept)
!> deterministic  yes: the same bits in every run
!> workspace      MiB that one convolution may use
!> transforms     yes: FFT and Winograd too, whose rounding errors are not those of a sum of products
!> compile        yes: also an engine that cuDNN compiles when its plan is made, which takes many
!>                seconds for each shape
!> direct         yes: convolutions of 3 x 3 with few channels by kernels of our own, whose operands are float32 in each
!>                math; no: all of them by cuDNN
!> capture        yes: a network's steps of the same shapes are captured as a CUDA graph and replayed
module cnn_core_device_name
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : i8
   implicit none
   private

   public :: parse_device

   integer, parameter, public :: math_fp32 = 1, math_tf32 = 2, math_fp16 = 3, math_bf16 = 4
   character(len=4), parameter, public :: math_names(4) = [character(len=4) :: "fp32", "tf32", "fp16", "bf16"]

   integer(i8), parameter :: mebibyte = 2_i8**20

   type, public :: device_name_type
      !> cpu, naive or cuda
      character(len=:), allocatable :: kind
      !> Which of several CUDA devices, from 0
      integer :: ordinal = 0
      integer :: math = math_fp32
      logical :: measured = .false.
      logical :: deterministic = .true.
      logical :: transforms = .false.
      logical :: compile = .false.
      logical :: direct = .true.
      logical :: capture = .true.
      integer(i8) :: workspace_limit = 256*mebibyte
   end type device_name_type

contains

   subroutine parse_device(text, device, error)
      !> What follows `--device`, such as cuda:1,math=tf32
      character(len=*), intent(in) :: text
      !> Parts of the name; options that are not named have their defaults
      type(device_name_type), intent(out) :: device
      !> Which part is unknown, and what was expected
      type(error_type), allocatable, intent(out) :: error
      integer :: first, last

      last = word_end(text, 1)
      call parse_kind(text, text(:last), device, error)
      if (allocated(error)) return
      do while (last < len(text))
         first = last + 2
         last = word_end(text, first)
         call parse_option(text, text(first:last), device, error)
         if (allocated(error)) return
      end do
   end subroutine parse_device

   !> Where the word that starts at `first` ends: before the next comma
   pure integer function word_end(text, first)
      !> Words with commas between them
      character(len=*), intent(in) :: text
      !> Position of the word's first character, from 1
      integer, intent(in) :: first
      word_end = index(text(min(first, len(text) + 1):), ",")
      if (word_end == 0) then
         word_end = len(text)
      else
         word_end = first + word_end - 2
      end if
   end function word_end

   subroutine parse_kind(text, word, device, error)
      !> The whole name, for messages
      character(len=*), intent(in) :: text
      !> The first word: the kind, with the ordinal after a colon
      character(len=*), intent(in) :: word
      type(device_name_type), intent(inout) :: device
      !> An unknown kind, or an ordinal that is no number
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: ordinal

      device%kind = word
      if (word == "cpu" .or. word == "naive" .or. word == "cuda") return
      if (index(word, "cuda:") /= 1) then
         call fail(error, "device "//text//": unknown, expected cpu or cuda")
         return
      end if
      device%kind = "cuda"
      ordinal = number(word(6:))
      if (ordinal < 0) then
         call fail(error, "device "//text//": the number after cuda: is """//word(6:)//""", expected 0 to 999999")
         return
      end if
      device%ordinal = int(ordinal)
   end subroutine parse_kind

   subroutine parse_option(text, word, device, error)
      !> The whole name, for messages
      character(len=*), intent(in) :: text
      !> One option, as name=value
      character(len=*), intent(in) :: word
      type(device_name_type), intent(inout) :: device
      !> An unknown option or value, or a kind that has no options
      type(error_type), allocatable, intent(out) :: error
      integer :: equals

      equals = index(word, "=")
      if (device%kind /= "cuda") then
         call fail(error, "device "//text//": """//word//""", but "//device%kind//" has no options")
      else
         call set_option(text, word, word(:max(equals - 1, 0)), word(equals + 1:), device, error)
      end if
   end subroutine parse_option

   subroutine set_option(text, word, name, value, device, error)
      !> The whole name, for messages
      character(len=*), intent(in) :: text
      !> One option, as name=value
      character(len=*), intent(in) :: word
      !> What stands before the equals sign
      character(len=*), intent(in) :: name
      !> What stands after it
      character(len=*), intent(in) :: value
      type(device_name_type), intent(inout) :: device
      !> An unknown name, or a value that the option does not have
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: wanted

      wanted = ""
      select case (name)
       case ("math")
         device%math = findloc(math_names == value, .true., dim=1)
         if (device%math == 0) wanted = "fp32, tf32, fp16 or bf16"
       case ("algorithm")
         device%measured = value == "measured"
         if (.not. device%measured .and. value /= "heuristic") wanted = "heuristic or measured"
       case ("deterministic")
         device%deterministic = value == "yes"
         if (.not. device%deterministic .and. value /= "no") wanted = "yes or no"
       case ("transforms")
         device%transforms = value == "yes"
         if (.not. device%transforms .and. value /= "no") wanted = "yes or no"
       case ("compile")
         device%compile = value == "yes"
         if (.not. device%compile .and. value /= "no") wanted = "yes or no"
       case ("direct")
         device%direct = value == "yes"
         if (.not. device%direct .and. value /= "no") wanted = "yes or no"
       case ("capture")
         device%capture = value == "yes"
         if (.not. device%capture .and. value /= "no") wanted = "yes or no"
       case ("workspace")
         device%workspace_limit = number(value)*mebibyte
         if (device%workspace_limit < 0) wanted = "0 to 999999, in MiB"
       case default
         call fail(error, "device "//text//": unknown option """//word//""", expected math=, algorithm=, "// &
            & "deterministic=, workspace=, transforms=, compile=, direct= or capture=")
      end select
      if (len(wanted) > 0) call fail(error, "device "//text//": "//name//" is """//value//""", expected "//wanted)
   end subroutine set_option

   !> A decimal number of at most 6 digits; -1 for anything else
   pure integer(i8) function number(text)
      !> Digits
      character(len=*), intent(in) :: text
      integer :: stat
      number = -1_i8
      if (len(text) < 1 .or. len(text) > 6 .or. verify(text, "0123456789") /= 0) return
      read (text, *, iostat=stat) number
      if (stat /= 0) number = -1_i8
   end function number

end module cnn_core_device_name
