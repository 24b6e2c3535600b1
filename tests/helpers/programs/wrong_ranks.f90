! SPDX-License-Identifier: MIT
!> `cnn_train` with processes that do not speak with each other as they should. Arguments: fixture, result, the fault, the
!> images of each batch.
module wrong_ranks
   use cnn_app_mpi_ranks, only : mpi_ranks_type
   use cnn_core_kinds, only : dp, dtype_float32, sp
   use cnn_core_tensor, only : as_vector, tensor_type
   implicit none
   private

   type, extends(mpi_ranks_type), public :: wrong_type
      character(len=32) :: fault = ""
      !> Of each batch
      integer :: images = 0
   contains
      procedure :: add_up => add_up_wrongly
      procedure :: gather => gather_wrongly
   end type wrong_type

contains

   subroutine add_up_wrongly(self, tensor)
      !> This process
      class(wrong_type), intent(in) :: self
      !> Is overwritten
      type(tensor_type), target, intent(in) :: tensor
      real(dp) :: factor
      integer :: first, own
      factor = 1.0_dp
      call self%part(self%images, self%rank, first, own)
      select case (self%fault)
       case ("unweighted parts")
         ! The mean of the ranks' means, whatever their sizes
         factor = real(self%images, dp)/(real(own, dp)*self%count)
       case ("one rank twice")
         if (self%rank == 1) factor = 2.0_dp
       case ("a forgotten rank")
         if (self%rank == self%count - 1) factor = 0.0_dp
       case ("sums in place of means")
         factor = real(self%count, dp)
       case ("nobody adds up")
         return
      end select
      call multiply(tensor, factor)
      call self%mpi_ranks_type%add_up(tensor)
   end subroutine add_up_wrongly

   !> By a number
   subroutine multiply(tensor, factor)
      !> Is overwritten
      type(tensor_type), intent(in) :: tensor
      !> The number
      real(dp), intent(in) :: factor
      real(sp), pointer, contiguous :: narrow(:)
      real(dp), pointer, contiguous :: wide(:)
      if (tensor%dtype == dtype_float32) then
         call as_vector(tensor, narrow)
         narrow = real(factor, sp)*narrow
      else
         call as_vector(tensor, wide)
         wide = factor*wide
      end if
   end subroutine multiply

   subroutine gather_wrongly(self, own, images, whole)
      !> This process
      class(wrong_type), intent(in) :: self
      !> Of this rank's images
      type(tensor_type), intent(in) :: own
      !> Of the batch
      integer, intent(in) :: images
      !> Of all images on rank 0
      type(tensor_type), intent(in) :: whole
      call self%mpi_ranks_type%gather(own, images, whole)
      ! No gradient is wrong, but what the images of one rank gave is another's
      if (self%fault == "outputs of another rank" .and. self%rank == 0) call turn(whole, images)
   end subroutine gather_wrongly

   !> The second half of the images before the first
   subroutine turn(whole, images)
      !> Of an even number of images
      type(tensor_type), intent(in) :: whole
      !> How many
      integer, intent(in) :: images
      real(sp), pointer, contiguous :: numbers(:)
      call as_vector(whole, numbers)
      numbers = cshift(numbers, size(numbers)/images*(images/2))
   end subroutine turn

end module wrong_ranks

program wrong_train
   use cnn_app_main_program, only : argument
   use cnn_core_error, only : error_type
   use cnn_io_run_steps, only : run_type, train
   use wrong_ranks, only : wrong_type
   implicit none
   type(wrong_type) :: ranks
   type(run_type) :: run
   type(error_type), allocatable :: error
   character(len=8) :: text
   call ranks%start()
   ranks%fault = argument(3)
   text = argument(4)
   read (text, *) ranks%images
   run%producer = "wrong_train"
   run%device = "cpu"
   run%precision = ""
   allocate (run%ranks, source=ranks)
   call train(argument(1), argument(2), run, error)
   if (allocated(error)) call ranks%end_all("wrong_train", error)
   call ranks%finish()
end program wrong_train
