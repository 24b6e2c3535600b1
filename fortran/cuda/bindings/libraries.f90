! SPDX-License-Identifier: MIT
!> Where NVIDIA's libraries are.
!>
!> Looked for in this order: the folders of CNN_CUDA_PATH (separated by colons); the folders of CNN_CUDA_WHEELS,
!> which the Python package sets to the libraries of NVIDIA's packages beside it; wherever the loader looks.
module cnn_cuda_bindings_libraries
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_shared_library, only : shared_library_type
   implicit none
   private

   public :: check_cublaslt, check_parts_of_cudnn, find_library

   character(len=*), parameter :: variables(2) = [character(len=15) :: "CNN_CUDA_PATH", "CNN_CUDA_WHEELS"]
   character(len=*), parameter :: packages = "pip install nvidia-cudnn-cu13 nvidia-cuda-runtime nvidia-cublas"

   !> In the order of their needs, so that each is found by its path before another one asks for it by name
   character(len=*), parameter :: parts(7) = [character(len=42) :: &
      & "libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_cnn.so.9", "libcudnn_adv.so.9", &
      & "libcudnn_heuristic.so.9", "libcudnn_engines_precompiled.so.9", "libcudnn_engines_runtime_compiled.so.9"]

contains

   !> Open the first of `names` that is found. A file in one of the folders that cannot be opened is an error at once:
   !> to go on to another one in silence would hide it.
   subroutine find_library(names, library, error)
      !> File names, the newest version first
      character(len=*), intent(in) :: names(:)
      !> The library, open after no error
      type(shared_library_type), intent(inout) :: library
      !> Where it was looked for, or why a file that is there cannot be opened
      type(error_type), allocatable, intent(out) :: error
      type(error_type), allocatable :: refusal
      character(len=:), allocatable :: said
      integer :: i
      do i = 1, size(variables)
         call look_in(value_of(trim(variables(i))), names, library, error)
         if (allocated(error) .or. library%is_open()) return
      end do
      said = ""
      do i = 1, size(names)
         call library%open(trim(names(i)), refusal)
         if (.not. allocated(refusal)) return
         if (i > 1) said = said//"; "
         said = said//refusal%message
      end do
      call fail(error, "device cuda: "//listed(names)//" not found ("//source_of(names(1))// &
         & "); looked in CNN_CUDA_PATH ("//shown("CNN_CUDA_PATH")//"), in NVIDIA's packages of this Python ("// &
         & shown("CNN_CUDA_WHEELS")//"), and where the loader looks ("//said//")")
   end subroutine find_library

   !> In each of the folders, separated by colons; `library` stays closed when there is none
   subroutine look_in(folders, names, library, error)
      !> Paths with colons between them; empty ones are left out
      character(len=*), intent(in) :: folders
      !> File names, the newest version first
      character(len=*), intent(in) :: names(:)
      !> The library, open where one was found
      type(shared_library_type), intent(inout) :: library
      !> A file is there but cannot be opened
      type(error_type), allocatable, intent(out) :: error
      integer :: first, last, i
      first = 1
      do while (first <= len(folders))
         last = index(folders(first:)//":", ":") + first - 2
         do i = 1, size(names)
            call open_in(folders(first:last), trim(names(i)), library, error)
            if (allocated(error) .or. library%is_open()) return
         end do
         first = last + 2
      end do
   end subroutine look_in

   subroutine open_in(folder, name, library, error)
      !> A path; with an empty one nothing happens
      character(len=*), intent(in) :: folder
      !> File name
      character(len=*), intent(in) :: name
      !> The library, open where the file is there
      type(shared_library_type), intent(inout) :: library
      !> It is there but cannot be opened
      type(error_type), allocatable, intent(out) :: error
      type(error_type), allocatable :: refusal
      logical :: exists
      if (len(folder) == 0) return
      inquire (file=folder//"/"//name, exist=exists)
      if (.not. exists) return
      call library%open(folder//"/"//name, refusal)
      if (allocated(refusal)) call fail(error, "device cuda: "//folder//"/"//name// &
         & " is there but cannot be opened: "//refusal%message)
   end subroutine open_in

   !> cuDNN opens its parts when it first needs them, and ends the process when one is missing: ask before
   subroutine check_parts_of_cudnn(shim, error)
      !> libcudnn, open
      type(shared_library_type), intent(in) :: shim
      !> A part is missing, or another cuDNN is in the process
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: other
      integer :: i
      if (is_whole(shim)) return
      ! The parts are opened by their names, so this cuDNN would get the parts of the other one
      other = shim%rival("libcudnn.so.9", "cudnnGetVersion")
      if (len(other) > 0) call fail(error, "device cuda: "//shim%path//" cannot be used beside "//other// &
         & ", which this process uses already (PyTorch's?): let CNN_CUDA_PATH name the folder of that one")
      if (allocated(error)) return
      do i = 1, size(parts)
         call check_part(shim, folder_of(shim%path), trim(parts(i)), error)
         if (allocated(error)) return
      end do
   end subroutine check_parts_of_cudnn

   !> Is it a cuDNN whose parts are the file itself? It opens none, and gets none of another one.
   logical function is_whole(shim)
      !> libcudnn, open
      type(shared_library_type), intent(in) :: shim
      integer :: i
      is_whole = .false.
      do i = 1, size(parts)
         if (.not. shim%lies_at(folder_of(shim%path)//"/"//trim(parts(i)))) return
      end do
      is_whole = .true.
   end function is_whole

   !> cuDNN ends the process likewise when it wants cuBLASLt for a convolution and does not find it. `cuda` is the
   !> major version that this cuDNN was built for.
   subroutine check_cublaslt(shim, cuda, error)
      !> libcudnn, open
      type(shared_library_type), intent(in) :: shim
      !> Major version of CUDA, 13 for CUDA 13.1
      integer, intent(in) :: cuda
      !> It is not found
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: packages
      ! Where cuDNN itself looks: NVIDIA's packages lie side by side
      packages = folder_of(shim%path)//"/../../"
      call check_part(shim, value_of(trim(variables(1)))//":"//value_of(trim(variables(2)))//":"// &
         & packages//"cu"//to_text(cuda)//"/lib:"//packages//"cublas/lib", "libcublasLt.so."//to_text(cuda), error)
   end subroutine check_cublaslt

   subroutine check_part(shim, folders, name, error)
      !> The library that needs it
      type(shared_library_type), intent(in) :: shim
      !> Paths with colons between them, looked in before the loader does
      character(len=*), intent(in) :: folders
      !> File name of the part
      character(len=*), intent(in) :: name
      !> It is not found, or cannot be opened
      type(error_type), allocatable, intent(out) :: error
      type(error_type), allocatable :: refusal
      type(shared_library_type) :: part
      call look_in(folders, [name], part, error)
      if (allocated(error) .or. part%is_open()) return
      call part%open(name, refusal)
      if (allocated(refusal)) call fail(error, "device cuda: "//shim%path//" needs "//name// &
         & ", which is neither beside it nor where the loader looks ("//refusal%message//")")
   end subroutine check_part

   pure function folder_of(path) result(folder)
      !> Path of a file
      character(len=*), intent(in) :: path
      character(len=:), allocatable :: folder
      folder = path(:max(scan(path, "/", back=.true.) - 1, 0))
   end function folder_of

   !> Whom to ask for a library
   pure function source_of(name) result(text)
      !> File name of a library
      character(len=*), intent(in) :: name
      character(len=:), allocatable :: text
      text = packages
      if (index(name, "libcuda.so") == 1) text = "it comes with NVIDIA's driver"
   end function source_of

   function value_of(variable) result(text)
      !> Name of an environment variable
      character(len=*), intent(in) :: variable
      character(len=:), allocatable :: text
      integer :: length, status
      call get_environment_variable(variable, length=length, status=status)
      text = repeat(" ", merge(length, 0, status == 0))
      if (len(text) > 0) call get_environment_variable(variable, text(:))
   end function value_of

   !> The value for a message
   function shown(variable) result(text)
      !> Name of an environment variable
      character(len=*), intent(in) :: variable
      character(len=:), allocatable :: text
      text = value_of(variable)
      if (len(text) == 0) text = "not set"
   end function shown

   pure function listed(names) result(text)
      !> One or more, padded with blanks
      character(len=*), intent(in) :: names(:)
      character(len=:), allocatable :: text
      integer :: i
      text = trim(names(1))
      do i = 2, size(names)
         text = text//" or "//trim(names(i))
      end do
   end function listed

end module cnn_cuda_bindings_libraries
