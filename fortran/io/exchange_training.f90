! SPDX-License-Identifier: MIT
!> What a training needs besides its weights to go on where it was: momenta, and the number of the step.
submodule(cnn_io_exchange) cnn_io_exchange_training
   use cnn_core_kinds, only : i8
   implicit none

contains

   module subroutine read_training(self, step, network, error)
      !> The fixture, open
      class(fixture_type), intent(inout) :: self
      !> Step whose momenta are read, from 0
      integer, intent(in) :: step
      !> A network that is built; momenta and number of the next step are set
      type(network_type), intent(inout) :: network
      !> A number or a tensor in the file that does not fit
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: path
      real(dp) :: first
      integer :: i

      first = 0.0_dp
      if (self%file%has_attribute("/", "first_step")) call self%file%read_number("/", "first_step", first, error)
      if (allocated(error)) return
      if (.not. (first >= 0.0_dp .and. first <= 2.0_dp**53) .or. abs(first - aint(first)) > 0.0_dp) then
         call fail(error, self%file%path//": attribute first_step of / is "//to_text(first)// &
            & ", expected a whole number from 0 on")
         return
      end if
      network%steps_done = int(first, i8) + step
      do i = 1, size(network%layers)
         path = momenta_path(step, network%layers(i)%is%name)
         call read_momentum(self, path//"/weight", network, network%layers(i)%weight%number, error)
         if (allocated(error)) return
         call read_momentum(self, path//"/bias", network, network%layers(i)%bias%number, error)
         if (allocated(error)) return
      end do
   end subroutine read_training

   !> The momentum of a parameter, where both are there
   subroutine read_momentum(self, path, network, number, error)
      !> The fixture, open
      class(fixture_type), intent(inout) :: self
      !> Path of the dataset
      character(len=*), intent(in) :: path
      !> A network with this parameter
      type(network_type), intent(inout) :: network
      !> Number of the parameter, 0 for none
      integer, intent(in) :: number
      !> An error of the file
      type(error_type), allocatable, intent(out) :: error
      if (number == 0 .or. .not. self%file%has(path)) return
      call network%parameters%keep_momentum(network%backend, number, .true., error)
      if (.not. allocated(error)) call self%read_checked(path, network, network%parameters%momentum(number), error)
   end subroutine read_momentum

   module subroutine write_training(self, network, error)
      !> The result, being written
      class(result_type), intent(inout) :: self
      !> A network whose momenta and number of the next step are written
      type(network_type), intent(in) :: network
      !> An error of the file
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      call self%put_number("/", "first_step", real(network%steps_done, dp), error)
      if (allocated(error)) return
      do i = 1, size(network%layers)
         associate (layer => network%layers(i))
            call self%write_parameters(momenta_path(0, layer%is%name), network, &
               & network%parameters%momentum(layer%weight%number), &
               & network%parameters%momentum(layer%bias%number), error)
         end associate
         if (allocated(error)) return
      end do
   end subroutine write_training

   pure function momenta_path(step, layer) result(path)
      !> Number of the step in the file
      integer, intent(in) :: step
      !> The layer's name
      character(len=*), intent(in) :: layer
      !> Of its group
      character(len=:), allocatable :: path
      path = "/steps/"//to_text(step)//"/momenta/"//layer
   end function momenta_path

end submodule cnn_io_exchange_training
