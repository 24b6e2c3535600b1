! SPDX-License-Identifier: MIT
!> The arguments of `cnn_step`.
module cnn_app_command_line
   use cnn_app_main_program, only : argument
   use cnn_core_error, only : error_type, fail
   implicit none
   private

   public :: read_arguments

   character(len=*), parameter :: nl = new_line("a")
   character(len=*), parameter, public :: usage = &
      & "usage: cnn_step FIXTURE RESULT [--device NAME] [--precision float32|float64]"//nl//nl// &
      & "Read a network, its weights and K batches from the exchange file FIXTURE, train K steps"//nl// &
      & "(forward, loss, backward, SGD update), and write every tensor of every step to RESULT."//nl//nl// &
      & "  --device NAME      cpu (default); cuda, cuda:1, ...: an NVIDIA GPU with cuDNN, found at run time;"//nl// &
      & "                     naive: plain loops, slow, for tests"//nl// &
      & "                     Options of cuda after commas, the first is the default:"//nl// &
      & "                       math=fp32|tf32|fp16|bf16          algorithm=heuristic|measured"//nl// &
      & "                       deterministic=yes|no              transforms=no|yes (FFT, Winograd)"//nl// &
      & "                       workspace=MiB (256)               graphs=yes|no (cuDNN's graph API)"//nl// &
      & "                       compile=no|yes (what takes cuDNN many seconds for each shape, too)"//nl// &
      & "                       direct=yes|no (our own kernels for 3 x 3 with few channels)"//nl// &
      & "                       capture=yes|no (of a network's steps: no matter here)"//nl// &
      & "                     as in cuda:1,math=tf32,workspace=512"//nl// &
      & "  --precision NAME   float32 or float64 (default: the fixture's)"//nl// &
      & "  --version          print the version"//nl// &
      & "  --help             print this"//nl//nl// &
      & "OMP_NUM_THREADS sets the number of threads; results do not depend on it."//nl// &
      & "CNN_CUDA_PATH lists folders with NVIDIA's libraries, where the loader does not find them"//nl// &
      & "(python -m bridge.doctor --cuda-path prints those of this Python)."//nl// &
      & "Exit status: 0 done, 2 bad input or usage (then RESULT is not touched)."//nl// &
      & "Compare the result:  python -m bridge.compare FIXTURE RESULT"

   type, public :: arguments_type
      character(len=:), allocatable :: fixture, result, device, precision
   end type arguments_type

contains

   subroutine read_arguments(arguments, error)
      !> Files and options; device cpu and precision empty where not named
      type(arguments_type), intent(out) :: arguments
      !> What is missing or unknown
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: word
      integer :: i

      arguments%device = "cpu"
      arguments%precision = ""
      i = 0
      do while (i < command_argument_count())
         i = i + 1
         word = argument(i)
         select case (word)
          case ("--device", "--precision")
            if (i == command_argument_count()) then
               call fail(error, word//" needs a value (cnn_step --help)")
               return
            end if
            i = i + 1
            if (word == "--device") arguments%device = argument(i)
            if (word == "--precision") arguments%precision = argument(i)
          case default
            call take_path(word, arguments, error)
            if (allocated(error)) return
         end select
      end do
      if (.not. allocated(arguments%result)) call fail(error, &
         & "expected two files, FIXTURE and RESULT (cnn_step --help)")
   end subroutine read_arguments

   subroutine take_path(word, arguments, error)
      !> A word that is no known option
      character(len=*), intent(in) :: word
      !> Where the path is put: fixture first, then result
      type(arguments_type), intent(inout) :: arguments
      !> An unknown option, or a third path
      type(error_type), allocatable, intent(out) :: error
      if (index(word, "--") == 1) then
         call fail(error, "unknown option "//word//" (cnn_step --help)")
      else if (.not. allocated(arguments%fixture)) then
         arguments%fixture = word
      else if (.not. allocated(arguments%result)) then
         arguments%result = word
      else
         call fail(error, "unexpected argument "//word//" (cnn_step --help)")
      end if
   end subroutine take_path

end module cnn_app_command_line
