! SPDX-License-Identifier: MIT
!> The flat face of the model that f90wrap wraps: numbers, addresses, texts; no logic.
!>
!> Networks are numbered handles. Tensors are addresses with an element type (`dtype_*` of
!> cnn_core_kinds) and an extent in Fortran order [w, h, c, n]; address 0 means "none". Every procedure ends
!> with `ierr` (0 good, 1 failed, 2 a training diverges) and `errmsg`. Nothing here checks that an address is good: that
!> is the work of `bridge/engine/library/extension.py`, the only caller.
module cnn_api
   use, intrinsic :: iso_c_binding, only : c_double, c_f_pointer, c_int, c_int64_t, c_intptr_t, c_loc, c_null_ptr, &
      & c_ptr
   use cnn_core_backend, only : backend_type
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dtype_name
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : all_finite, tensor_type
   use cnn_core_text, only : to_text
   use cnn_core_version, only : version
   use cnn_cpu_info, only : describe_cpu, describe_ways
   use cnn_cuda_info_plans, only : describe_plan
   use cnn_cuda_info_report, only : list_facts => cuda_facts
   use cnn_cuda_plans_request, only : conv_request_type
   use cnn_devices, only : close_cuda_devices, find_cuda_device, live_on_cuda_devices, open_device
   use cnn_io_exchange, only : fixture_type, result_type
   use cnn_io_run_steps, only : run_steps
   use cnn_model_network, only : network_type
   use cnn_model_network_ways, only : describe_chains
   use cnn_model_parameters, only : parameter_type
   use cnn_oracle_deviation, only : find_deviations => deviations
   use cnn_oracle_deviation_type, only : deviation_type
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: version_text, array_finite, device_check, run_file
   public :: network_create, network_free, network_read_weights, network_save, network_address, network_copy
   public :: network_forward, network_loss, network_backward, network_update, network_step, network_read_loss
   public :: network_feed, network_step_fed, network_recorded, network_freeze, network_frozen
   public :: network_keep_momentum, network_steps_done
   public :: conv2d_extent, conv2d_forward, conv2d_backward
   public :: device_stream, device_wait, device_allocate, device_release, device_copy_in, device_copy_out
   public :: device_convert, device_of, devices_close, devices_live, cuda_facts
   public :: conv2d_ways, cpu_facts, deviations, network_ways, plan_text

   integer, parameter :: message_length = 512

   type :: slot_type
      type(network_type), pointer :: network => null()
   end type slot_type

   !> Networks by handle; a freed place is used again
   type(slot_type), allocatable :: slots(:)

contains

   subroutine version_text(text)
      character(len=32), intent(out) :: text
      text = version
   end subroutine version_text

   !> 1 when none of the elements in host memory is NaN or infinite, else 0
   subroutine array_finite(dtype, count, address, finite, ierr, errmsg)
      integer(c_int), intent(in) :: dtype
      integer(c_int64_t), intent(in) :: count, address
      integer(c_int), intent(out) :: finite
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      finite = merge(1_c_int, 0_c_int, all_finite(pointer_to(address), dtype, count))
      call hand_over(error, ierr, errmsg)
   end subroutine array_finite

   !> An error when there is no device of this name
   subroutine device_check(device, ierr, errmsg)
      character(len=*), intent(in) :: device
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_check

   !> See cnn_io_run_steps
   subroutine run_file(fixture, result, device, precision, ierr, errmsg)
      character(len=*), intent(in) :: fixture, result, device, precision
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      call run_steps(fixture, result, device, precision, error)
      call hand_over(error, ierr, errmsg)
   end subroutine run_file

   !> A new network from a model description; its weights are zero.
   !> `fuse` 1: ReLU together with the convolution before it, whose own output does not exist then; 2: also keep only
   !> what training needs (see network_type%lean)
   subroutine network_create(text, dtype, device, fuse, handle, ierr, errmsg)
      character(len=*), intent(in) :: text, device
      integer(c_int), intent(in) :: dtype, fuse
      integer(c_int), intent(out) :: handle, ierr
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      handle = free_place()
      allocate (slots(handle)%network)
      slots(handle)%network%fuse = fuse /= 0
      slots(handle)%network%lean = fuse == 2
      call slots(handle)%network%build(text, dtype, device, error)
      if (allocated(error)) deallocate (slots(handle)%network)
      call hand_over(error, ierr, errmsg)
   end subroutine network_create

   !> Free a network; an unknown handle is not an error
   subroutine network_free(handle)
      integer(c_int), intent(in) :: handle
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find(handle, network, error)
      if (allocated(error)) return
      deallocate (slots(handle)%network)
   end subroutine network_free

   !> Weights before step `step` from an exchange file of the same model, with their momenta where it has them
   subroutine network_read_weights(handle, path, step, ierr, errmsg)
      integer(c_int), intent(in) :: handle, step
      character(len=*), intent(in) :: path
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(fixture_type) :: fixture
      type(error_type), allocatable :: error
      call find(handle, network, error)
      if (.not. allocated(error)) call fixture%open(path, error)
      if (.not. allocated(error)) call fixture%read_weights(step, network, error)
      if (.not. allocated(error)) call fixture%read_training(step, network, error)
      call fixture%close()
      call hand_over(error, ierr, errmsg)
   end subroutine network_read_weights

   !> An exchange file with the model, the optimiser settings, and the weights and momenta as those before step 0; an
   !> older file stays as it was where one of them is NaN or infinite, which no reader would take
   subroutine network_save(handle, path, lr, momentum, dampening, weight_decay, nesterov, ierr, errmsg)
      integer(c_int), intent(in) :: handle, nesterov
      character(len=*), intent(in) :: path
      real(c_double), intent(in) :: lr, momentum, dampening, weight_decay
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(result_type) :: file
      type(error_type), allocatable :: error
      call find(handle, network, error)
      file%finite_only = .true.
      if (.not. allocated(error)) call file%create(path, "bridge.Network "//version, network, &
         & sgd_type(lr, momentum, dampening, weight_decay, nesterov /= 0), error)
      if (.not. allocated(error)) call file%write_weights(0, network, error)
      if (.not. allocated(error)) call file%write_training(network, error)
      if (.not. allocated(error)) call file%commit(error)
      if (allocated(error)) call file%abandon()
      call hand_over(error, ierr, errmsg)
   end subroutine network_save

   !> Address and extent of a tensor; address 0 when it does not exist (yet).
   !> `layer` counts from 1, 0 is the network's input; `which`: see `named_tensor`
   subroutine network_address(handle, layer, which, address, extent, ierr, errmsg)
      integer(c_int), intent(in) :: handle, layer, which
      integer(c_int64_t), intent(out) :: address
      integer(c_int), intent(out) :: extent(4)
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(tensor_type) :: tensor
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find(handle, network, error)
      if (.not. allocated(error)) call named_tensor(network, layer, which, tensor, error)
      address = transfer(tensor%address, 0_c_intptr_t)
      extent = tensor%extent
      call hand_over(error, ierr, errmsg)
   end subroutine network_address

   !> Copy a tensor (as in `network_address`) to host memory of its size
   subroutine network_copy(handle, layer, which, host, ierr, errmsg)
      integer(c_int), intent(in) :: handle, layer, which
      integer(c_int64_t), intent(in) :: host
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(tensor_type) :: tensor
      type(error_type), allocatable :: error
      call find(handle, network, error)
      if (.not. allocated(error)) call named_tensor(network, layer, which, tensor, error)
      if (.not. allocated(error)) call network%backend%copy_out(tensor, pointer_to(host), error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_copy

   !> Outputs of all layers; the input must stay alive until `network_backward`
   subroutine network_forward(handle, input, extent, ierr, errmsg)
      integer(c_int), intent(in) :: handle
      integer(c_int64_t), intent(in) :: input
      integer(c_int), intent(in) :: extent(4)
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find(handle, network, error)
      if (.not. allocated(error)) call network%forward(tensor_at(input, int(network%dtype, c_int), extent), error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_forward

   subroutine network_loss(handle, target, extent, loss, ierr, errmsg)
      integer(c_int), intent(in) :: handle
      integer(c_int64_t), intent(in) :: target
      integer(c_int), intent(in) :: extent(4)
      real(c_double), intent(out) :: loss
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      loss = 0.0_c_double
      call find(handle, network, error)
      if (.not. allocated(error)) then
         call network%compute_loss(tensor_at(target, int(network%dtype, c_int), extent), loss, error)
      end if
      call hand_over(error, ierr, errmsg)
   end subroutine network_loss

   subroutine network_backward(handle, ierr, errmsg)
      integer(c_int), intent(in) :: handle
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find(handle, network, error)
      if (.not. allocated(error)) call network%backward(error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_backward

   subroutine network_update(handle, lr, momentum, dampening, weight_decay, nesterov, ierr, errmsg)
      integer(c_int), intent(in) :: handle, nesterov
      real(c_double), intent(in) :: lr, momentum, dampening, weight_decay
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find(handle, network, error)
      if (.not. allocated(error)) then
         call network%update(sgd_type(lr, momentum, dampening, weight_decay, nesterov /= 0), error)
      end if
      call hand_over(error, ierr, errmsg)
   end subroutine network_update

   !> forward, loss, backward, update; the loss is read, which waits for the device, if `read` is not 0: it is an error
   !> (2) if it is NaN or infinite, and there is no update then
   subroutine network_step(handle, input, input_extent, target, target_extent, lr, momentum, dampening, &
         & weight_decay, nesterov, read, loss, ierr, errmsg)
      integer(c_int), intent(in) :: handle, nesterov, read
      integer(c_int64_t), intent(in) :: input, target
      integer(c_int), intent(in) :: input_extent(4), target_extent(4)
      real(c_double), intent(in) :: lr, momentum, dampening, weight_decay
      real(c_double), intent(out) :: loss
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      loss = 0.0_c_double
      call find(handle, network, error)
      if (.not. allocated(error)) call network%step(tensor_at(input, int(network%dtype, c_int), input_extent), &
         & tensor_at(target, int(network%dtype, c_int), target_extent), &
         & sgd_type(lr, momentum, dampening, weight_decay, nesterov /= 0), read /= 0, loss, error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_step

   !> 1 if the last step was replayed from a recording, else 0
   subroutine network_recorded(handle, recorded, ierr, errmsg)
      integer(c_int), intent(in) :: handle
      integer(c_int), intent(out) :: recorded
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      recorded = 0
      call find(handle, network, error)
      if (.not. allocated(error)) recorded = merge(1, 0, network%is_recorded())
      call hand_over(error, ierr, errmsg)
   end subroutine network_recorded

   !> Let a parameter have a momentum (1), zero where it had none, or forget it (0); `which`: 1 weight, 2 bias
   subroutine network_keep_momentum(handle, layer, which, kept, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1, and of its tensor
      integer(c_int), intent(in) :: layer, which
      !> 1 or 0
      integer(c_int), intent(in) :: kept
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(parameter_type) :: parameter
      type(error_type), allocatable :: error
      call find_parameter(handle, layer, which, network, parameter, error)
      if (.not. allocated(error)) call network%parameters%keep_momentum(network%backend, parameter%number, kept /= 0, &
         & error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_keep_momentum

   !> Updates so far, those before the file was written that it comes from included
   subroutine network_steps_done(handle, steps, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> How many
      integer(c_int64_t), intent(out) :: steps
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      steps = 0
      call find(handle, network, error)
      if (.not. allocated(error)) steps = network%steps_done
      call hand_over(error, ierr, errmsg)
   end subroutine network_steps_done

   !> From now on updates leave a parameter as it is (1) or not (0); `which`: 1 weight, 2 bias
   subroutine network_freeze(handle, layer, which, frozen, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1, and of its tensor
      integer(c_int), intent(in) :: layer, which
      !> 1 or 0
      integer(c_int), intent(in) :: frozen
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(parameter_type) :: parameter
      type(error_type), allocatable :: error
      call find_parameter(handle, layer, which, network, parameter, error)
      if (.not. allocated(error)) call network%parameters%freeze(parameter%number, frozen /= 0)
      call hand_over(error, ierr, errmsg)
   end subroutine network_freeze

   !> 1 if updates leave a parameter as it is, else 0
   subroutine network_frozen(handle, layer, which, frozen, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1, and of its tensor
      integer(c_int), intent(in) :: layer, which
      !> 1 or 0
      integer(c_int), intent(out) :: frozen
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(parameter_type) :: parameter
      type(error_type), allocatable :: error
      frozen = 0
      call find_parameter(handle, layer, which, network, parameter, error)
      if (.not. allocated(error)) frozen = merge(1, 0, network%parameters%is_frozen(parameter%number))
      call hand_over(error, ierr, errmsg)
   end subroutine network_frozen

   !> Input and target of the next `network_step_fed`, from host memory, which is free to change on return
   subroutine network_feed(handle, input, input_extent, target, target_extent, ierr, errmsg)
      integer(c_int), intent(in) :: handle
      integer(c_int64_t), intent(in) :: input, target
      integer(c_int), intent(in) :: input_extent(4), target_extent(4)
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find(handle, network, error)
      if (.not. allocated(error)) call network%feed(tensor_at(input, int(network%dtype, c_int), input_extent), &
         & tensor_at(target, int(network%dtype, c_int), target_extent), error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_feed

   !> `network_step` with the last `network_feed`
   subroutine network_step_fed(handle, lr, momentum, dampening, weight_decay, nesterov, read, loss, ierr, errmsg)
      integer(c_int), intent(in) :: handle, nesterov, read
      real(c_double), intent(in) :: lr, momentum, dampening, weight_decay
      real(c_double), intent(out) :: loss
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      loss = 0.0_c_double
      call find(handle, network, error)
      if (.not. allocated(error)) call network%step_fed( &
         & sgd_type(lr, momentum, dampening, weight_decay, nesterov /= 0), read /= 0, loss, error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_step_fed

   !> The loss of the last `network_loss` or `network_step`; waits for the device
   subroutine network_read_loss(handle, loss, ierr, errmsg)
      integer(c_int), intent(in) :: handle
      real(c_double), intent(out) :: loss
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      loss = 0.0_c_double
      call find(handle, network, error)
      if (.not. allocated(error)) call network%read_loss(loss, error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_read_loss

   !> Shape of the output. `params` is stride, padding, dilation as (h, w) each, then groups
   subroutine conv2d_extent(x_extent, w_extent, params, y_extent, ierr, errmsg)
      integer(c_int), intent(in) :: x_extent(4), w_extent(4), params(7)
      integer(c_int), intent(out) :: y_extent(4)
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(conv_type) :: conv
      type(error_type), allocatable :: error
      conv = conv_from(params)
      call conv%output_extent(x_extent, w_extent, y_extent, error)
      call hand_over(error, ierr, errmsg)
   end subroutine conv2d_extent

   !> y = conv2d(x, w) + bias, and max(y, 0) when `relu` is not 0
   subroutine conv2d_forward(device, dtype, params, relu, x, x_extent, w, w_extent, bias, y, ierr, errmsg)
      character(len=*), intent(in) :: device
      integer(c_int), intent(in) :: dtype, params(7), relu, x_extent(4), w_extent(4)
      integer(c_int64_t), intent(in) :: x, w, bias, y
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(conv_type) :: conv
      type(error_type), allocatable :: error
      integer :: y_extent(4)
      conv = conv_from(params)
      call open_device(device, backend, error)
      if (.not. allocated(error)) call conv%output_extent(x_extent, w_extent, y_extent, error)
      if (.not. allocated(error)) call check_dtype(backend, dtype, error)
      if (.not. allocated(error)) call backend%conv_forward(conv_step_type(conv=conv, relu=relu /= 0, &
         & x=tensor_at(x, dtype, x_extent), w=tensor_at(w, dtype, w_extent), &
         & bias=tensor_at(bias, dtype, [w_extent(4), 1, 1, 1]), y=tensor_at(y, dtype, y_extent)), error)
      call hand_over(error, ierr, errmsg)
   end subroutine conv2d_forward

   !> The gradients whose address is not 0: dx, dw, db
   subroutine conv2d_backward(device, dtype, params, x, x_extent, w, w_extent, dy, dx, dw, db, ierr, errmsg)
      character(len=*), intent(in) :: device
      integer(c_int), intent(in) :: dtype, params(7), x_extent(4), w_extent(4)
      integer(c_int64_t), intent(in) :: x, w, dy, dx, dw, db
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(conv_type) :: conv
      type(error_type), allocatable :: error
      type(tensor_type) :: upstream
      integer :: y_extent(4)
      conv = conv_from(params)
      call open_device(device, backend, error)
      if (.not. allocated(error)) call conv%output_extent(x_extent, w_extent, y_extent, error)
      if (.not. allocated(error)) call check_dtype(backend, dtype, error)
      upstream = tensor_at(dy, dtype, y_extent)
      if (.not. allocated(error) .and. dx /= 0) call backend%conv_backward_data(conv, &
         & tensor_at(w, dtype, w_extent), upstream, tensor_at(dx, dtype, x_extent), error)
      if (.not. allocated(error) .and. dw /= 0) call backend%conv_backward_filter(conv, &
         & tensor_at(x, dtype, x_extent), upstream, tensor_at(dw, dtype, w_extent), error)
      if (.not. allocated(error) .and. db /= 0) call backend%conv_backward_bias(upstream, &
         & tensor_at(db, dtype, [w_extent(4), 1, 1, 1]), error)
      call hand_over(error, ierr, errmsg)
   end subroutine conv2d_backward

   subroutine check_dtype(backend, dtype, error)
      class(backend_type), intent(in) :: backend
      integer(c_int), intent(in) :: dtype
      type(error_type), allocatable, intent(out) :: error
      if (.not. backend%supports(int(dtype))) call fail(error, "device "//backend%name//": conv2d in "// &
         & dtype_name(int(dtype))//", expected float32 or float64")
   end subroutine check_dtype

   !> Queue what comes next on this device to a CUDA stream; -1 for the library's own. Other devices have none
   subroutine device_stream(device, stream, ierr, errmsg)
      character(len=*), intent(in) :: device
      integer(c_int64_t), intent(in) :: stream
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call backend%use_stream(pointer_to(max(stream, 0_c_int64_t)), stream < 0, error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_stream

   !> Wait for all that is queued on this device
   subroutine device_wait(device, ierr, errmsg)
      character(len=*), intent(in) :: device
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call backend%wait(error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_wait

   !> Memory for a tensor, with undefined values
   subroutine device_allocate(device, dtype, extent, address, ierr, errmsg)
      character(len=*), intent(in) :: device
      integer(c_int), intent(in) :: dtype, extent(4)
      integer(c_int64_t), intent(out) :: address
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(tensor_type) :: tensor
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call backend%allocate(int(dtype), int(extent), tensor, error)
      address = transfer(tensor%address, 0_c_intptr_t)
      call hand_over(error, ierr, errmsg)
   end subroutine device_allocate

   !> Give memory of `device_allocate` back
   subroutine device_release(device, address, ierr, errmsg)
      character(len=*), intent(in) :: device
      integer(c_int64_t), intent(in) :: address
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(tensor_type) :: tensor
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      tensor = tensor_at(address, 0_c_int, [0, 0, 0, 0])
      if (.not. allocated(error)) call backend%release(tensor)
      call hand_over(error, ierr, errmsg)
   end subroutine device_release

   !> Host memory to a tensor
   subroutine device_copy_in(device, dtype, extent, host, address, ierr, errmsg)
      character(len=*), intent(in) :: device
      integer(c_int), intent(in) :: dtype, extent(4)
      integer(c_int64_t), intent(in) :: host, address
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call backend%copy_in(pointer_to(host), tensor_at(address, dtype, extent), error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_copy_in

   !> A tensor to host memory
   subroutine device_copy_out(device, dtype, extent, address, host, ierr, errmsg)
      character(len=*), intent(in) :: device
      integer(c_int), intent(in) :: dtype, extent(4)
      integer(c_int64_t), intent(in) :: address, host
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call backend%copy_out(tensor_at(address, dtype, extent), pointer_to(host), error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_copy_out

   !> `count` elements from one place on the device to another, in another element type or the same
   subroutine device_convert(device, count, from_dtype, from, to_dtype, to, ierr, errmsg)
      character(len=*), intent(in) :: device
      integer(c_int64_t), intent(in) :: count, from, to
      integer(c_int), intent(in) :: from_dtype, to_dtype
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      integer(c_int) :: extent(4)
      extent = 1_c_int
      if (count < 1 .or. count > huge(1)) then
         call fail(error, "device "//device//": conversion of "//to_text(count)//" elements, expected 1 to 2**31 - 1")
      else
         extent(1) = int(count, c_int)
         call open_device(device, backend, error)
      end if
      if (.not. allocated(error)) call backend%convert(tensor_at(from, from_dtype, extent), &
         & tensor_at(to, to_dtype, extent), error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_convert

   !> The number of the CUDA device that the address belongs to, -1 for host memory
   subroutine device_of(address, ordinal, ierr, errmsg)
      integer(c_int64_t), intent(in) :: address
      integer(c_int), intent(out) :: ordinal, ierr
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      call find_cuda_device(pointer_to(address), ordinal, error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_of

   !> Give all devices back; an error says what was still alive
   subroutine devices_close(ierr, errmsg)
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      call close_cuda_devices(error)
      call hand_over(error, ierr, errmsg)
   end subroutine devices_close

   !> Allocations alive on CUDA devices, workspaces and buffers included; 0 after `devices_close`
   subroutine devices_live(count, ierr, errmsg)
      integer(c_int), intent(out) :: count, ierr
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      count = int(live_on_cuda_devices(), c_int)
      call hand_over(error, ierr, errmsg)
   end subroutine devices_live

   !> The plan of cuDNN's graph API for an operation (as in cnn_cuda_plans_request: 1 forward, 2 data, 3 filter, 4 bias)
   !> on a CUDA device, or on the GPU that `gpu` describes in JSON; empty when there is none. `fused` are bias, ReLU,
   !> mask
   subroutine plan_text(device, gpu, operation, dtype, layout, fused, params, x_extent, w_extent, text, ierr, errmsg)
      character(len=*), intent(in) :: device, gpu
      integer(c_int), intent(in) :: operation, dtype, layout, fused(3), params(7), x_extent(4), w_extent(4)
      character(len=512), intent(out) :: text
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      type(conv_request_type) :: request
      character(len=:), allocatable :: said

      request = conv_request_type(operation=operation, dtype=dtype, layout=layout, bias=fused(1) /= 0, &
         & relu=fused(2) /= 0, mask=fused(3) /= 0, conv=conv_from(params), x=x_extent, w=w_extent)
      text = ""
      call request%conv%output_extent(request%x, request%w, request%y, error)
      if (.not. allocated(error)) call describe_plan(device, gpu, request, said, error)
      if (allocated(said)) text = said
      call hand_over(error, ierr, errmsg)
   end subroutine plan_text

   !> What there is of CUDA, one fact a line; `part`: see cnn_cuda_info_report, empty for all
   subroutine cuda_facts(part, text, ierr, errmsg)
      character(len=*), intent(in) :: part
      character(len=8192), intent(out) :: text
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      character(len=:), allocatable :: facts
      if (len_trim(part) > 0) then
         call list_facts(facts, trim(part))
      else
         call list_facts(facts)
      end if
      text = facts
      call hand_over(error, ierr, errmsg)
   end subroutine cuda_facts

   !> What the device `cpu` makes of this machine, see cnn_cpu_info
   subroutine cpu_facts(text, ierr, errmsg)
      character(len=512), intent(out) :: text
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      character(len=:), allocatable :: facts
      type(error_type), allocatable :: error
      call describe_cpu(facts, error)
      text = facts
      call hand_over(error, ierr, errmsg)
   end subroutine cpu_facts

   !> How the device `cpu` computes a convolution, its data gradient and its filter gradient
   subroutine conv2d_ways(dtype, params, x_extent, w_extent, text, ierr, errmsg)
      integer(c_int), intent(in) :: dtype, params(7), x_extent(4), w_extent(4)
      character(len=512), intent(out) :: text
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      character(len=:), allocatable :: ways
      type(error_type), allocatable :: error
      call describe_ways(conv_from(params), int(dtype), x_extent, w_extent, ways, error)
      text = ways
      call hand_over(error, ierr, errmsg)
   end subroutine conv2d_ways

   !> How a network's convolutions are computed for an input of these extents, a line for each chain; see
   !> cnn_model_network_ways
   subroutine network_ways(handle, x_extent, text, ierr, errmsg)
      integer(c_int), intent(in) :: handle, x_extent(4)
      character(len=4096), intent(out) :: text
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      character(len=:), allocatable :: ways
      type(error_type), allocatable :: error
      text = ""
      call find(handle, network, error)
      if (.not. allocated(error)) call describe_chains(network, int(x_extent), ways, error)
      if (.not. allocated(error)) text = ways
      call hand_over(error, ierr, errmsg)
   end subroutine network_ways

   !> Of up to three tensors (address 0: none) from a value of n elements, see cnn_oracle_deviation.
   !> `dtypes`: theirs, and the value's at the end.
   !> `figures`: address of 8 float64 for each: T, its place, the largest error, sums of x*v, x*x, v*v and (x - v)**2,
   !> and 1 where these figures cannot be relied on, else 0
   subroutine deviations(dtypes, tensors, n, value, bound, bounds, figures, ierr, errmsg)
      integer(c_int), intent(in) :: dtypes(4)
      integer(c_int64_t), intent(in) :: tensors(3), n, value, bound, bounds, figures
      integer(c_int), intent(out) :: ierr
      character(len=512), intent(out) :: errmsg
      type(deviation_type), allocatable :: found(:)
      type(error_type), allocatable :: error
      real(c_double), pointer, contiguous :: numbers(:, :)
      integer :: i, count
      count = findloc([tensors, 0_c_int64_t], 0_c_int64_t, dim=1) - 1
      allocate (found(count))
      call find_deviations(int(dtypes(:count)), [(pointer_to(tensors(i)), i=1, count)], n, int(dtypes(4)), &
         & pointer_to(value), pointer_to(bound), bounds, found, error)
      call c_f_pointer(pointer_to(figures), numbers, [8, count])
      do i = 1, count
         numbers(:, i) = [found(i)%t, real(found(i)%at, c_double), found(i)%largest, found(i)%sums, &
            & merge(1.0_c_double, 0.0_c_double, found(i)%unclear())]
      end do
      call hand_over(error, ierr, errmsg)
   end subroutine deviations

   !> which: 1 weight, 2 bias, 3 weight gradient, 4 bias gradient, 5 output, 6 output gradient, 7 momentum of the
   !> weight, 8 of the bias
   subroutine named_tensor(network, layer, which, tensor, error)
      type(network_type), intent(in) :: network
      integer(c_int), intent(in) :: layer, which
      type(tensor_type), intent(out) :: tensor
      type(error_type), allocatable, intent(out) :: error
      if (layer == 0 .and. which == 6) then
         tensor = network%input_gradient
         return
      end if
      if (layer < 1 .or. layer > size(network%layers)) then
         call fail(error, "layer "//to_text(int(layer))//" of a network of "//to_text(size(network%layers)))
         return
      end if
      select case (which)
       case (1)
         tensor = network%layers(layer)%weight%value
       case (2)
         tensor = network%layers(layer)%bias%value
       case (3)
         tensor = network%layers(layer)%weight%gradient
       case (4)
         tensor = network%layers(layer)%bias%gradient
       case (5)
         if (network%layers(layer)%hidden) then
            call fail(error, "output: the device keeps that of "//network%layers(layer)%is%name//" in a form of "// &
               & "its own, expected "//network%description%layers(size(network%layers))%name// &
               & ", or a network with lean=False")
         else
            tensor = network%layers(layer)%output
         end if
       case (6)
         tensor = network%layers(layer)%output_gradient
       case (7)
         tensor = network%parameters%momentum(network%layers(layer)%weight%number)
       case (8)
         tensor = network%parameters%momentum(network%layers(layer)%bias%number)
       case default
         call fail(error, "no tensor number "//to_text(int(which)))
      end select
   end subroutine named_tensor

   !> A parameter of a network
   subroutine find_parameter(handle, layer, which, network, parameter, error)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1; 1 for its weight, 2 for its bias
      integer(c_int), intent(in) :: layer, which
      !> With this handle
      type(network_type), pointer, intent(out) :: network
      !> Found
      type(parameter_type), intent(out) :: parameter
      !> Where there is no such network or parameter
      type(error_type), allocatable, intent(out) :: error
      call find(handle, network, error)
      if (allocated(error)) return
      if (layer >= 1 .and. layer <= size(network%layers)) then
         parameter = network%layers(layer)%weight
         if (which == 2) parameter = network%layers(layer)%bias
      end if
      if (parameter%number == 0) call fail(error, "network: layer "//to_text(int(layer))// &
         & " has no parameter number "//to_text(int(which)))
   end subroutine find_parameter

   pure type(conv_type) function conv_from(params)
      integer(c_int), intent(in) :: params(7)
      conv_from = conv_type(params(1), params(2), params(3), params(4), params(5), params(6), params(7))
   end function conv_from

   type(tensor_type) function tensor_at(address, dtype, extent)
      integer(c_int64_t), intent(in) :: address
      integer(c_int), intent(in) :: dtype
      integer, intent(in) :: extent(4)
      tensor_at%address = pointer_to(address)
      tensor_at%dtype = dtype
      tensor_at%extent = extent
   end function tensor_at

   type(c_ptr) function pointer_to(address)
      integer(c_int64_t), intent(in) :: address
      pointer_to = transfer(int(address, c_intptr_t), c_null_ptr)
   end function pointer_to

   subroutine find(handle, network, error)
      integer(c_int), intent(in) :: handle
      type(network_type), pointer, intent(out) :: network
      type(error_type), allocatable, intent(out) :: error
      nullify (network)
      if (allocated(slots)) then
         if (handle >= 1 .and. handle <= size(slots)) network => slots(handle)%network
      end if
      if (.not. associated(network)) call fail(error, "network "//to_text(int(handle))//" does not exist")
   end subroutine find

   !> The number of a place without a network; the table grows when all are taken
   integer function free_place()
      type(slot_type), allocatable :: larger(:)
      if (.not. allocated(slots)) allocate (slots(8))
      do free_place = 1, size(slots)
         if (.not. associated(slots(free_place)%network)) return
      end do
      allocate (larger(2*size(slots)))
      larger(:size(slots)) = slots
      call move_alloc(larger, slots)
   end function free_place

   subroutine hand_over(error, ierr, errmsg)
      type(error_type), allocatable, intent(in) :: error
      integer(c_int), intent(out) :: ierr
      character(len=message_length), intent(out) :: errmsg
      ierr = 0
      errmsg = ""
      if (.not. allocated(error)) return
      ierr = merge(2, 1, error%diverged)
      errmsg = error%message
   end subroutine hand_over

end module cnn_api
