! SPDX-License-Identifier: MIT
!> Exchange files, version 1: a fixture is read, a result is written. docs/exchange-file.md describes
!> every name in them.
!>
!> Tensors of a network on the host are written from where they are, and new ones are read to where they will be.
!> Others pass through one host buffer on their way between the file and the network's device. The buffer is kept: fresh
!> memory for every tensor would cost more time than the copy.
module cnn_io_exchange
   use cnn_core_atomic_file, only : part_file_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_name
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : all_finite, tensor_type
   use cnn_core_text, only : to_text
   use cnn_cpu_backend, only : cpu_type
   use cnn_io_hdf5_file, only : hdf5_file_type
   use cnn_model_network, only : network_type
   use cnn_model_parameters, only : parameter_type
   implicit none
   private

   character(len=*), parameter :: format_name = "cnn-exchange"
   integer, parameter :: format_version = 1

   !> Host memory that grows to the largest tensor
   type :: staging_type
      type(cpu_type) :: host
      type(tensor_type) :: buffer
   contains
      procedure :: like
      procedure :: free
   end type staging_type

   !> An exchange file to read
   type, public :: fixture_type
      type(hdf5_file_type) :: file
      !> The model description (JSON) and the precision of the tensors
      character(len=:), allocatable :: model, precision
      type(sgd_type) :: sgd
      logical :: has_sgd = .false.
      integer :: batches = 0
      type(staging_type), private :: staging
   contains
      procedure :: open => fixture_open
      procedure :: read_weights
      procedure :: read_training
      procedure :: read_batch
      procedure :: close => fixture_close
      procedure, private :: read_optimizer, read_checked, read_parameter
   end type fixture_type

   !> An exchange file being written; it appears under its name only by `commit`
   type, public :: result_type
      type(hdf5_file_type) :: file
      character(len=:), allocatable :: path
      type(part_file_type), private :: part
      !> Refuse tensors with NaN or infinity: no reader of a fixture takes them
      logical :: finite_only = .false.
      type(staging_type), private :: staging
   contains
      procedure :: create => result_create
      procedure :: write_weights
      procedure :: write_training
      procedure :: write_forward
      procedure :: write_gradients
      procedure :: write_loss
      procedure :: commit
      procedure :: abandon
      procedure, private :: write_staged, write_parameters, mark_frozen, put_text, put_number
   end type result_type

   interface
      !> Momenta before step `step`, where the file has them, and how many steps there were before it
      module subroutine read_training(self, step, network, error)
         implicit none
         !> Open
         class(fixture_type), intent(inout) :: self
         !> Its number in the file
         integer, intent(in) :: step
         !> With the weights of that step, and no momenta
         type(network_type), intent(inout) :: network
         !> Of the file
         type(error_type), allocatable, intent(out) :: error
      end subroutine read_training

      !> Momenta before step 0, of the parameters that have one, and how many steps there were before it
      module subroutine write_training(self, network, error)
         implicit none
         !> Created
         class(result_type), intent(inout) :: self
         !> Whose weights are those before step 0
         type(network_type), intent(in) :: network
         !> Of the file
         type(error_type), allocatable, intent(out) :: error
      end subroutine write_training
   end interface

contains

   !> A host tensor with the type and shape of `tensor`, in the buffer's memory
   subroutine like(self, tensor, staged, error)
      class(staging_type), intent(inout) :: self
      type(tensor_type), intent(in) :: tensor
      type(tensor_type), intent(out) :: staged
      type(error_type), allocatable, intent(out) :: error
      if (.not. self%buffer%is_allocated() .or. self%buffer%bytes() < tensor%bytes()) then
         call self%host%release(self%buffer)
         call self%host%allocate(tensor%dtype, tensor%extent, self%buffer, error)
         if (allocated(error)) return
      end if
      staged = tensor
      staged%address = self%buffer%address
   end subroutine like

   subroutine free(self)
      class(staging_type), intent(inout) :: self
      call self%host%release(self%buffer)
   end subroutine free

   !> Open a file, check its format, and read what is not a tensor
   subroutine fixture_open(self, path, error)
      class(fixture_type), intent(inout) :: self
      character(len=*), intent(in) :: path
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: format, found
      real(dp) :: version

      call self%file%open_to_read(path, error)
      if (allocated(error)) return
      call self%file%read_text_attribute("/", "format", format, error)
      if (allocated(error)) return
      if (format /= format_name) then
         call fail(error, path//": format is "//format//", expected "//format_name)
         return
      end if
      call self%file%read_number("/", "format_version", version, error)
      if (allocated(error)) return
      ! written so that NaN is refused
      if (.not. abs(version - format_version) <= 0.0_dp) then
         found = to_text(version)
         if (abs(version - anint(version)) <= 0.0_dp .and. abs(version) < huge(1)) found = to_text(nint(version))
         call fail(error, path//": format_version is "//found//", this program reads version "//to_text(format_version))
         return
      end if
      self%precision = "float32"
      if (self%file%has_attribute("/", "precision")) then
         call self%file%read_text_attribute("/", "precision", self%precision, error)
      end if
      if (allocated(error)) return
      call self%file%read_text("/model", self%model, error)
      if (allocated(error)) return
      self%has_sgd = self%file%has("/optimizer")
      if (self%has_sgd) call self%read_optimizer(error)
      if (allocated(error)) return
      self%batches = 0
      do while (self%file%has("/batches/"//to_text(self%batches)//"/input"))
         self%batches = self%batches + 1
      end do
   end subroutine fixture_open

   subroutine read_optimizer(self, error)
      class(fixture_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: kind
      real(dp) :: nesterov
      call self%file%read_text_attribute("/optimizer", "type", kind, error)
      if (allocated(error)) return
      if (kind /= "sgd") then
         call fail(error, self%file%path//": optimizer type is "//kind//", expected sgd")
         return
      end if
      call self%file%read_number("/optimizer", "lr", self%sgd%lr, error)
      if (allocated(error)) return
      call self%file%read_number("/optimizer", "momentum", self%sgd%momentum, error)
      if (allocated(error)) return
      call self%file%read_number("/optimizer", "dampening", self%sgd%dampening, error)
      if (allocated(error)) return
      call self%file%read_number("/optimizer", "weight_decay", self%sgd%weight_decay, error)
      if (allocated(error)) return
      call self%file%read_number("/optimizer", "nesterov", nesterov, error)
      if (allocated(error)) return
      self%sgd%nesterov = abs(nesterov - 1.0_dp) <= 0.0_dp
      if (.not. (self%sgd%nesterov .or. abs(nesterov) <= 0.0_dp)) then
         call fail(error, self%file%path//": attribute nesterov of /optimizer is neither 0 nor 1")
         return
      end if
      call self%sgd%check(error)
      if (allocated(error)) error%message = self%file%path//": "//error%message
   end subroutine read_optimizer

   !> Weights before step `step` into a network of the same model, and which of them are frozen
   subroutine read_weights(self, step, network, error)
      class(fixture_type), intent(inout) :: self
      integer, intent(in) :: step
      type(network_type), intent(inout) :: network
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: path
      integer :: i
      do i = 1, size(network%layers)
         path = weights_path(step, network%layers(i)%is%name)
         call self%read_parameter(path//"/weight", network, network%layers(i)%weight, error)
         if (.not. allocated(error)) call self%read_parameter(path//"/bias", network, network%layers(i)%bias, error)
         if (allocated(error)) return
      end do
   end subroutine read_weights

   !> A weight or bias, and whether it is frozen; nothing where a layer has none
   subroutine read_parameter(self, path, network, parameter, error)
      !> Open
      class(fixture_type), intent(inout) :: self
      !> Of the dataset
      character(len=*), intent(in) :: path
      !> With this parameter
      type(network_type), intent(inout) :: network
      !> To be read
      type(parameter_type), intent(in) :: parameter
      !> Of the file
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: frozen
      if (parameter%number == 0) return
      call self%read_checked(path, network, parameter%value, error)
      if (allocated(error)) return
      frozen = 0.0_dp
      if (self%file%has_attribute(path, "frozen")) call self%file%read_number(path, "frozen", frozen, error)
      if (allocated(error)) return
      if (.not. (abs(frozen) <= 0.0_dp .or. abs(frozen - 1.0_dp) <= 0.0_dp)) then
         call fail(error, self%file%path//": attribute frozen of "//path//" is neither 0 nor 1")
      else
         call network%parameters%freeze(parameter%number, frozen > 0.0_dp)
      end if
   end subroutine read_parameter

   !> Input and target of step `step`, as new tensors of the network's device
   subroutine read_batch(self, step, network, input, target, error)
      class(fixture_type), intent(inout) :: self
      integer, intent(in) :: step
      type(network_type), intent(inout) :: network
      type(tensor_type), intent(inout) :: input, target
      type(error_type), allocatable, intent(out) :: error
      call read_new("input", input)
      if (allocated(error)) return
      call read_new("target", target)

   contains

      subroutine read_new(name, tensor)
         character(len=*), intent(in) :: name
         type(tensor_type), intent(inout) :: tensor
         integer :: extent(4)
         character(len=:), allocatable :: path
         path = "/batches/"//to_text(step)//"/"//name
         call network%backend%release(tensor)
         call self%file%extent(path, extent, error, expected_rank=4)
         if (allocated(error)) return
         call network%backend%allocate(network%dtype, extent, tensor, error)
         if (allocated(error)) then
            error%message = self%file%path//": "//path//": "//error%message
            return
         end if
         call self%read_checked(path, network, tensor, error, fresh=.true.)
      end subroutine read_new

   end subroutine read_batch

   !> A dataset into a device tensor; NaN and infinity are refused. Unless it is `fresh`, it keeps its values then
   subroutine read_checked(self, path, network, tensor, error, fresh)
      class(fixture_type), intent(inout) :: self
      character(len=*), intent(in) :: path
      type(network_type), intent(in) :: network
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      logical, intent(in), optional :: fresh
      type(tensor_type) :: staged
      logical :: direct
      direct = .false.
      if (present(fresh)) direct = fresh .and. on_host(network)
      staged = tensor
      if (.not. direct) call self%staging%like(tensor, staged, error)
      if (allocated(error)) return
      call self%file%read_tensor(path, staged, error)
      if (allocated(error)) return
      if (all_finite(staged%address, staged%dtype, staged%count())) then
         if (.not. direct) call network%backend%copy_in(staged%address, tensor, error)
      else
         call fail(error, self%file%path//": "//path//" holds NaN or infinity, expected finite "// &
            & dtype_name(tensor%dtype)//" values")
      end if
   end subroutine read_checked

   subroutine fixture_close(self)
      class(fixture_type), intent(inout) :: self
      type(error_type), allocatable :: ignored
      ! A file that was only read has nothing to lose
      call self%file%close(ignored)
      call self%staging%free()
   end subroutine fixture_close

   !> Start a result: everything but tensors
   subroutine result_create(self, path, producer, network, sgd, error)
      class(result_type), intent(inout) :: self
      character(len=*), intent(in) :: path, producer
      type(network_type), intent(in) :: network
      type(sgd_type), intent(in) :: sgd
      type(error_type), allocatable, intent(out) :: error
      ! A reader would refuse what no training can use
      call sgd%check(error)
      if (allocated(error)) return
      self%path = path
      call self%part%begin(path, error)
      if (allocated(error)) return
      call self%file%create(self%part%name, error)
      ! The user knows the file by its final name
      self%file%path = path
      if (allocated(error)) then
         error%message = path//": the file cannot be created (no room?)"
         return
      end if
      call self%part%hold()
      call self%put_text("/", "format", format_name, error)
      call self%put_number("/", "format_version", real(format_version, dp), error)
      call self%put_text("/", "producer", producer, error)
      call self%put_text("/", "role", "candidate", error)
      call self%put_text("/", "precision", dtype_name(network%dtype), error)
      call self%put_text("/", "device", network%backend%name, error)
      call self%put_text("/", "math_mode", network%backend%math_mode(network%dtype), error)
      call self%put_text("/optimizer", "type", "sgd", error)
      call self%put_number("/optimizer", "lr", sgd%lr, error)
      call self%put_number("/optimizer", "momentum", sgd%momentum, error)
      call self%put_number("/optimizer", "dampening", sgd%dampening, error)
      call self%put_number("/optimizer", "weight_decay", sgd%weight_decay, error)
      call self%put_number("/optimizer", "nesterov", merge(1.0_dp, 0.0_dp, sgd%nesterov), error)
      if (allocated(error)) return
      call self%file%write_text("/model", network%description%text, error)
   end subroutine result_create

   !> A text attribute; nothing happens after an error
   subroutine put_text(self, object, name, text, error)
      class(result_type), intent(in) :: self
      character(len=*), intent(in) :: object, name, text
      type(error_type), allocatable, intent(inout) :: error
      if (.not. allocated(error)) call self%file%write_text_attribute(object, name, text, error)
   end subroutine put_text

   !> A number attribute; nothing happens after an error
   subroutine put_number(self, object, name, value, error)
      class(result_type), intent(in) :: self
      character(len=*), intent(in) :: object, name
      real(dp), intent(in) :: value
      type(error_type), allocatable, intent(inout) :: error
      if (.not. allocated(error)) call self%file%write_number(object, name, value, error)
   end subroutine put_number

   !> Weights and biases before step `step` (after the last step: with its number plus one), and which are frozen
   subroutine write_weights(self, step, network, error)
      class(result_type), intent(inout) :: self
      integer, intent(in) :: step
      type(network_type), intent(in) :: network
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 1, size(network%layers)
         associate (layer => network%layers(i))
            call self%write_parameters(weights_path(step, layer%is%name), network, layer%weight%value, &
               & layer%bias%value, error)
            call self%mark_frozen(weights_path(step, layer%is%name)//"/weight", network, layer%weight, error)
            call self%mark_frozen(weights_path(step, layer%is%name)//"/bias", network, layer%bias, error)
         end associate
         if (allocated(error)) return
      end do
   end subroutine write_weights

   !> The attribute of the dataset of a frozen parameter; nothing happens after an error
   subroutine mark_frozen(self, path, network, parameter, error)
      !> With the dataset
      class(result_type), intent(in) :: self
      !> Of the dataset
      character(len=*), intent(in) :: path
      !> With this parameter
      type(network_type), intent(in) :: network
      !> Which has been written
      type(parameter_type), intent(in) :: parameter
      !> Of the file
      type(error_type), allocatable, intent(inout) :: error
      if (network%parameters%is_frozen(parameter%number)) call self%put_number(path, "frozen", 1.0_dp, error)
   end subroutine mark_frozen

   !> Outputs of all layers
   subroutine write_forward(self, step, network, error)
      class(result_type), intent(inout) :: self
      integer, intent(in) :: step
      type(network_type), intent(in) :: network
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 1, size(network%layers)
         call self%write_staged("/steps/"//to_text(step)//"/forward/"//network%layers(i)%is%name, network, &
            & network%layers(i)%output, 4, error)
         if (allocated(error)) return
      end do
   end subroutine write_forward

   !> Gradients with respect to parameters, outputs and the input
   subroutine write_gradients(self, step, network, error)
      class(result_type), intent(inout) :: self
      integer, intent(in) :: step
      type(network_type), intent(in) :: network
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: path
      integer :: i
      path = "/steps/"//to_text(step)//"/grads/"
      call self%write_staged(path//"input", network, network%input_gradient, 4, error)
      if (allocated(error)) return
      do i = 1, size(network%layers)
         associate (layer => network%layers(i))
            call self%write_staged(path//layer%is%name//"/output", network, layer%output_gradient, 4, error)
            if (allocated(error)) return
            call self%write_parameters(path//layer%is%name, network, layer%weight%gradient, &
               & layer%bias%gradient, error)
         end associate
         if (allocated(error)) return
      end do
   end subroutine write_gradients

   subroutine write_loss(self, step, loss, error)
      class(result_type), intent(in) :: self
      integer, intent(in) :: step
      real(dp), intent(in) :: loss
      type(error_type), allocatable, intent(out) :: error
      call self%file%write_scalar("/steps/"//to_text(step)//"/loss", loss, error)
   end subroutine write_loss

   !> A pair weight, bias; what is not allocated does not exist
   subroutine write_parameters(self, path, network, weight, bias, error)
      class(result_type), intent(inout) :: self
      character(len=*), intent(in) :: path
      type(network_type), intent(in) :: network
      type(tensor_type), intent(in) :: weight, bias
      type(error_type), allocatable, intent(out) :: error
      if (weight%is_allocated()) call self%write_staged(path//"/weight", network, weight, 4, error)
      if (allocated(error)) return
      if (bias%is_allocated()) call self%write_staged(path//"/bias", network, bias, 1, error)
   end subroutine write_parameters

   subroutine write_staged(self, path, network, tensor, rank, error)
      class(result_type), intent(inout) :: self
      character(len=*), intent(in) :: path
      type(network_type), intent(in) :: network
      type(tensor_type), intent(in) :: tensor
      integer, intent(in) :: rank
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: staged
      staged = tensor
      if (.not. on_host(network)) then
         call self%staging%like(tensor, staged, error)
         if (allocated(error)) return
         call network%backend%copy_out(tensor, staged%address, error)
         if (allocated(error)) return
      end if
      if (self%finite_only .and. .not. all_finite(staged%address, staged%dtype, staged%count())) then
         call fail(error, self%path//": not written, as "//path//" holds NaN or infinity, expected finite values "// &
            & "(the training diverges: a smaller lr?)")
      else
         call self%file%write_tensor(path, staged, rank, error)
      end if
   end subroutine write_staged

   !> Close the file and put it in its place
   subroutine commit(self, error)
      class(result_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      call self%staging%free()
      call self%file%close(error)
      if (allocated(error)) then
         call self%part%discard()
      else
         call self%part%commit(error)
      end if
   end subroutine commit

   !> Forget an unfinished result; an older file of its name stays as it was
   subroutine abandon(self)
      class(result_type), intent(inout) :: self
      type(error_type), allocatable :: ignored
      call self%staging%free()
      call self%file%close(ignored)
      call self%part%discard()
   end subroutine abandon

   !> The file can be read to and written from the network's memory
   pure logical function on_host(network)
      type(network_type), intent(in) :: network
      on_host = .false.
      select type (backend => network%backend)
      class is (cpu_type)
         on_host = .true.
      end select
   end function on_host

   pure function weights_path(step, layer) result(path)
      integer, intent(in) :: step
      character(len=*), intent(in) :: layer
      character(len=:), allocatable :: path
      path = "/steps/"//to_text(step)//"/weights/"//layer
   end function weights_path

end module cnn_io_exchange
