! SPDX-License-Identifier: MIT
!> The update of parameters: one call for each run of parameters that are updated alike.
submodule(cnn_model_parameters) cnn_model_parameters_update
   implicit none

contains

   module procedure update
      type(name_type), allocatable :: names(:)
      integer :: first, last

      allocate (names, source=optimizer%memory_names())
      if (optimizer%states() > 0) call self%take_names(names)
      call self%reserve_states(backend, optimizer%states(), error)
      if (allocated(error)) return
      first = 1
      do while (first <= size(self%parts))
         last = run_end(self, first)
         if (.not. self%parts(first)%is_frozen) call update_run(self, backend, optimizer, first, last, error)
         if (allocated(error)) return
         first = last + 1
      end do
   end procedure update

   !> The last parameter up to which all are frozen or none is, and as many updates are remembered of all
   pure integer function run_end(self, first)
      type(parameters_type), intent(in) :: self
      !> The first of the run
      integer, intent(in) :: first
      do run_end = first, size(self%parts) - 1
         associate (one => self%parts(first), next => self%parts(run_end + 1))
            if ((one%is_frozen .neqv. next%is_frozen) .or. one%updates /= next%updates) return
         end associate
      end do
   end function run_end

   !> One step on a run of parameters
   subroutine update_run(self, backend, optimizer, first, last, error)
      type(parameters_type), intent(inout) :: self
      class(backend_type), intent(in) :: backend
      !> With the learning rate of this step
      class(optimizer_type), intent(in) :: optimizer
      !> Number of the first parameter
      integer, intent(in) :: first
      !> Number of the last
      integer, intent(in) :: last
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: state(size(self%states))
      integer :: i
      do i = 1, optimizer%states()
         state(i) = part_of_run(self, self%states(i), first, last)
         ! It may hold what another optimizer has left
         if (self%parts(first)%updates == 0) call backend%clear(state(i), error)
         if (allocated(error)) return
      end do
      associate (parts => self%parts(first:last))
         call optimizer%step(backend, parts(1)%updates, part_of_run(self, self%values, first, last), &
            & part_of_run(self, self%gradients, first, last), state, error)
         if (allocated(error) .or. optimizer%states() == 0) return
         parts%has_state = .true.
         parts%updates = parts%updates + 1
      end associate
   end subroutine update_run

   !> What a run of parameters has of a vector
   function part_of_run(self, vector, first, last) result(part)
      type(parameters_type), intent(in) :: self
      !> All values, gradients, or states
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
