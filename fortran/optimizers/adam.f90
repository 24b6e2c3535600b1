! SPDX-License-Identifier: MIT
!> Adam and AdamW, with torch's names and meaning.
!>
!>     g = g + weight_decay*w                         adam
!>     w = w - lr*weight_decay*w                      adamw
!>     m = beta1*m + (1 - beta1)*g,  v = beta2*v + (1 - beta2)*g**2
!>     w = w - lr * (m/(1 - beta1**t)) / (sqrt(v/(1 - beta2**t)) + eps)      in step t = 1, 2, ...
!>
!> Source.  D. Kingma and J. Ba, Adam, ICLR 2015, algorithm 1; I. Loshchilov and F. Hutter, Decoupled Weight Decay
!>          Regularization, ICLR 2019, algorithm 2; torch.optim.Adam and AdamW.
module cnn_optimizers_adam
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : adam_call
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_float32, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : name_type, to_text
   use cnn_optimizers_loops_f32, only : adam_f32 => adam_loop
   use cnn_optimizers_loops_f64, only : adam_f64 => adam_loop
   use cnn_optimizers_optimizer, only : optimizer_type, setting_type
   implicit none
   private

   type, extends(optimizer_type), public :: adam_type
      real(dp) :: beta1 = 0.9_dp, beta2 = 0.999_dp, eps = 1.0e-8_dp, weight_decay = 0.0_dp
      !> Whether the decay is taken off the weights (adamw), and not added to the gradient (adam)
      logical :: decoupled = .false.
   contains
      procedure :: kind => adam_kind
      procedure :: settings => adam_settings
      procedure :: set => adam_set
      procedure :: check => adam_check
      procedure :: states => adam_states
      procedure :: memory_names => adam_memory_names
      procedure :: step => adam_step
   end type adam_type

contains

   pure function adam_kind(self) result(kind)
      class(adam_type), intent(in) :: self
      character(len=:), allocatable :: kind
      kind = "adam"
      if (self%decoupled) kind = "adamw"
   end function adam_kind

   pure function adam_settings(self) result(settings)
      class(adam_type), intent(in) :: self
      type(setting_type), allocatable :: settings(:)
      settings = [setting_type("lr", self%lr), setting_type("beta1", self%beta1), setting_type("beta2", self%beta2), &
         & setting_type("eps", self%eps), setting_type("weight_decay", self%weight_decay)]
   end function adam_settings

   subroutine adam_set(self, values, error)
      class(adam_type), intent(inout) :: self
      !> lr, beta1, beta2, eps, weight_decay
      real(dp), intent(in) :: values(:)
      type(error_type), allocatable, intent(out) :: error
      self%lr = values(1)
      self%beta1 = values(2)
      self%beta2 = values(3)
      self%eps = values(4)
      self%weight_decay = values(5)
      call self%check(error)
   end subroutine adam_set

   subroutine adam_check(self, error)
      class(adam_type), intent(in) :: self
      type(error_type), allocatable, intent(out) :: error
      type(setting_type), allocatable :: settings(:)
      character(len=:), allocatable :: expected
      integer :: i
      allocate (settings, source=self%settings())
      do i = 1, size(settings)
         expected = "a finite value >= 0"
         if (i == 2 .or. i == 3) expected = "a value from 0 on and less than 1"
         if (settings(i)%value >= 0.0_dp .and. settings(i)%value <= huge(1.0_dp)) then
            if (settings(i)%value < 1.0_dp .or. .not. (i == 2 .or. i == 3)) cycle
         end if
         call fail(error, self%kind()//": "//trim(settings(i)%name)//" is "//to_text(settings(i)%value)// &
            & ", expected "//expected)
         return
      end do
   end subroutine adam_check

   pure integer function adam_states(self)
      class(adam_type), intent(in) :: self
      associate (unused => self)
      end associate
      adam_states = 2
   end function adam_states

   pure function adam_memory_names(self) result(names)
      class(adam_type), intent(in) :: self
      type(name_type), allocatable :: names(:)
      associate (unused => self)
      end associate
      allocate (names(2))
      names(1)%text = "exp_avg"
      names(2)%text = "exp_avg_sq"
   end function adam_memory_names

   subroutine adam_step(self, backend, taken, w, g, state, error)
      class(adam_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Steps before this one
      integer(i8), intent(in) :: taken
      !> Parameters, updated in place
      type(tensor_type), intent(in) :: w
      !> Gradient of the loss with respect to them
      type(tensor_type), intent(in) :: g
      !> The averages of the gradient and of its square
      type(tensor_type), intent(in) :: state(:)
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: settings(8)
      settings = [self%lr, self%beta1, self%beta2, self%eps, 1.0_dp, self%weight_decay, &
         & 1.0_dp - self%beta1**(taken + 1), 1.0_dp - self%beta2**(taken + 1)]
      if (self%decoupled) settings(5:6) = [1.0_dp - self%lr*self%weight_decay, 0.0_dp]
      if (.not. backend%in_host_memory) then
         call backend%compute(adam_call(settings, g, w, state(1), state(2)), error)
      else if (w%dtype == dtype_float32) then
         call adam_f32(g, w, state(1), state(2), settings)
      else
         call adam_f64(g, w, state(1), state(2), settings)
      end if
   end subroutine adam_step

end module cnn_optimizers_adam
