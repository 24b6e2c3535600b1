! SPDX-License-Identifier: MIT
!> The update of parameters: one call for each run of those that are frozen or not, and have a momentum or not, alike.
submodule(cnn_model_parameters) cnn_model_parameters_update
   implicit none

contains

   module procedure update
      integer :: first, last

      if (sgd%momentum > 0.0_dp) call self%reserve_momenta(backend, error)
      if (allocated(error)) return
      first = 1
      do while (first <= size(self%parts))
         last = run_end(self, first)
         if (.not. self%parts(first)%is_frozen) call update_run(self, backend, sgd, first, last, error)
         if (allocated(error)) return
         first = last + 1
      end do
   end procedure update

   !> The last parameter up to which all are frozen or none is, and all have a momentum or none has
   pure integer function run_end(self, first)
      !> The parameters
      type(parameters_type), intent(in) :: self
      !> The first of the run
      integer, intent(in) :: first
      do run_end = first, size(self%parts) - 1
         associate (one => self%parts(first), next => self%parts(run_end + 1))
            if ((one%is_frozen .neqv. next%is_frozen) .or. (one%has_momentum .neqv. next%has_momentum)) return
         end associate
      end do
   end function run_end

   !> One SGD step on a run of parameters
   subroutine update_run(self, backend, sgd, first, last, error)
      !> The parameters
      type(parameters_type), intent(inout) :: self
      !> Where they are
      class(backend_type), intent(in) :: backend
      !> Settings of the optimizer, for this step
      type(sgd_type), intent(in) :: sgd
      !> Number of the first parameter
      integer, intent(in) :: first
      !> Number of the last
      integer, intent(in) :: last
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: momenta
      if (sgd%momentum > 0.0_dp) momenta = part_of_run(self, self%momenta, first, last)
      call backend%update(sgd, .not. self%parts(first)%has_momentum, part_of_run(self, self%values, first, last), &
         & part_of_run(self, self%gradients, first, last), momenta, error)
      if (allocated(error)) return
      if (momenta%is_allocated()) self%parts(first:last)%has_momentum = .true.
   end subroutine update_run

   !> What a run of parameters has of a vector
   function part_of_run(self, vector, first, last) result(part)
      !> The parameters
      type(parameters_type), intent(in) :: self
      !> All values, gradients or momenta
      type(tensor_type), intent(in) :: vector
      !> Number of the first parameter
      integer, intent(in) :: first
      !> Number of the last
      integer, intent(in) :: last
      !> Of one dimension
      type(tensor_type) :: part
      integer(i8) :: bytes
      bytes = self%parts(last)%offset - self%parts(first)%offset + self%parts(last)%bytes
      part = part_of(vector, self%parts(first)%offset, [int(bytes/bytes_of(vector%dtype)), 1, 1, 1])
   end function part_of_run

end submodule cnn_model_parameters_update
