! SPDX-License-Identifier: MIT
!> The arguments of `cnn_step` and `cnn_train`.
module cnn_app_command_line
   use cnn_app_main_program, only : argument
   use cnn_core_error, only : error_type, fail
   implicit none
   private

   public :: read_arguments

   character(len=*), parameter :: nl = new_line("a")
   !> What both programs say of devices, precision and the rest
   character(len=*), parameter :: options = &
      & "  --device NAME      cpu (default); cuda, cuda:1, ...: an NVIDIA GPU with cuDNN, found at run time;"//nl// &
      & "                     naive: plain loops, slow, for tests"//nl// &
      & "                     Options of cuda after commas, the first is the default:"//nl// &
      & "                       math=fp32|tf32|fp16|bf16          algorithm=heuristic|measured"//nl// &
      & "                       deterministic=yes|no              transforms=no|yes (FFT, Winograd)"//nl// &
      & "                       workspace=MiB (256)               direct=yes|no (own kernels)"//nl// &
      & "                       compile=no|yes (what takes cuDNN many seconds for each shape, too)"//nl// &
      & "                       capture=yes|no (of a network's steps: no matter here)"//nl// &
      & "                     as in cuda:1,math=tf32,workspace=512"//nl// &
      & "  --precision NAME   float32 or float64 (default: the fixture's)"//nl// &
      & "  --version          print the version"//nl// &
      & "  --help             print this"//nl//nl
   character(len=*), parameter :: ending = &
      & "OMP_NUM_THREADS sets the number of threads; results do not depend on it."//nl// &
      & "CNN_CUDA_PATH lists folders with NVIDIA's libraries, where the loader does not find them"//nl// &
      & "(python -m bridge.doctor --cuda-path prints those of this Python)."//nl// &
      & "Exit status: 0 done, 2 bad input or usage (then RESULT is not touched)."//nl// &
      & "Compare the result:  python -m bridge.compare FIXTURE RESULT"
   character(len=*), parameter, public :: usage = &
      & "usage: cnn_step FIXTURE RESULT [--device NAME] [--precision float32|float64]"//nl//nl// &
      & "Read a network, its weights and K batches from the exchange file FIXTURE, train K steps"//nl// &
      & "(forward, loss, backward, SGD update), and write every tensor of every step to RESULT."//nl//nl// &
      & options//ending
   character(len=*), parameter, public :: training_usage = &
      & "usage: mpirun -n N cnn_train FIXTURE RESULT [--steps K] [--reproducible] [--device NAME]"//nl// &
      & "                             [--precision float32|float64]"//nl//nl// &
      & "Train the network of the exchange file FIXTURE on its batches with N processes (ranks). Rank"//nl// &
      & "r takes the images n*r/N .. n*(r+1)/N of each batch of n images, all gradients are added up,"//nl// &
      & "and every rank takes the same step. Rank 0 writes what cnn_step writes, with the images of"//nl// &
      & "all ranks; the comparison at the end shows that N ranks are one."//nl//nl// &
      & "  --steps K          how many (default: one with each batch). Then the batches come again,"//nl// &
      & "                     and of these steps RESULT has the loss, and the weights after the last"//nl// &
      & "  --reproducible     add gradients up image by image in the order of the batch: the same bits"//nl// &
      & "                     for every N, for the memory of all gradients for each image of a rank,"//nl// &
      & "                     and steps of which all is written take twice the time. Not with"//nl// &
      & "                     batch_norm2d, whose images do not stand by themselves"//nl// &
      & options// &
      & "A batch_norm2d takes mean and variance over the images of its rank, and rank 0 writes its own:"//nl// &
      & "then N ranks are not one, as the comparison says. The ranks of a machine share its GPU, unless"//nl// &
      & "CUDA_VISIBLE_DEVICES is another for each. A rank that fails or is killed ends all, and RESULT"//nl// &
      & "stays as it was. OMP_NUM_THREADS is for each rank: with one rank a core, 1."//nl//nl// &
      & "  mpirun -n 4 cnn_train fixture.h5 result.h5                          are 4 ranks one?"//nl// &
      & "  mpirun -n 4 cnn_train fixture.h5 result.h5 --steps 1000 --reproducible"//nl//nl// &
      & ending

   type, public :: arguments_type
      character(len=:), allocatable :: fixture, result, device, precision
      !> Of `cnn_train`: steps, 0 for one with each batch, and whether bits must not depend on the number of ranks
      integer :: steps = 0
      logical :: reproducible = .false.
   end type arguments_type

contains

   subroutine read_arguments(name, arguments, error)
      !> Whose: cnn_step or cnn_train
      character(len=*), intent(in) :: name
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
          case ("--device", "--precision", "--steps", "--reproducible")
            call take_option(name, word, i, arguments, error)
          case default
            call take_path(name, word, arguments, error)
         end select
         if (allocated(error)) return
      end do
      if (.not. allocated(arguments%result)) call fail(error, &
         & "expected two files, FIXTURE and RESULT ("//name//" --help)")
   end subroutine read_arguments

   subroutine take_option(name, word, i, arguments, error)
      !> Whose
      character(len=*), intent(in) :: name
      !> A known option
      character(len=*), intent(in) :: word
      !> Its place; that of its value afterwards
      integer, intent(inout) :: i
      !> Where the option is put
      type(arguments_type), intent(inout) :: arguments
      !> No value, a value that is none, or an option of the other program
      type(error_type), allocatable, intent(out) :: error
      if (name == "cnn_step" .and. (word == "--steps" .or. word == "--reproducible")) then
         call fail(error, "unknown option "//word//" ("//name//" --help)")
      else if (word == "--reproducible") then
         arguments%reproducible = .true.
      else if (i == command_argument_count()) then
         call fail(error, word//" needs a value ("//name//" --help)")
      else
         i = i + 1
         if (word == "--device") arguments%device = argument(i)
         if (word == "--precision") arguments%precision = argument(i)
         if (word == "--steps") call read_number(argument(i), arguments%steps)
         if (word == "--steps" .and. arguments%steps < 1) call fail(error, "--steps "//argument(i)// &
            & ": expected a whole number from 1 on ("//name//" --help)")
      end if
   end subroutine take_option

   !> 0 for what is no number
   pure subroutine read_number(text, number)
      !> A word of the command line
      character(len=*), intent(in) :: text
      !> At most 999999999
      integer, intent(out) :: number
      integer :: stat
      number = 0
      if (len(text) < 1 .or. len(text) > 9 .or. verify(text, "0123456789") /= 0) return
      read (text, *, iostat=stat) number
      if (stat /= 0) number = 0
   end subroutine read_number

   subroutine take_path(name, word, arguments, error)
      !> Whose
      character(len=*), intent(in) :: name
      !> A word that is no known option
      character(len=*), intent(in) :: word
      !> Where the path is put: fixture first, then result
      type(arguments_type), intent(inout) :: arguments
      !> An unknown option, or a third path
      type(error_type), allocatable, intent(out) :: error
      if (index(word, "--") == 1) then
         call fail(error, "unknown option "//word//" ("//name//" --help)")
      else if (.not. allocated(arguments%fixture)) then
         arguments%fixture = word
      else if (.not. allocated(arguments%result)) then
         arguments%result = word
      else
         call fail(error, "unexpected argument "//word//" ("//name//" --help)")
      end if
   end subroutine take_path

end module cnn_app_command_line
