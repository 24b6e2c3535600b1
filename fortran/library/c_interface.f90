! SPDX-License-Identifier: MIT
!> The library for C and what speaks with C: the functions of cnn.h, which says what they mean.
!>
!> A network is a pointer to one of Fortran. Shapes are C's, the slowest dimension first: torch's (n, c, h, w), which is
!> Fortran's (w, h, c, n). Functions give 0, or 1 with a message, or 2 where a training diverges.
module cnn_library_c_interface
   use, intrinsic :: ieee_arithmetic, only : ieee_is_nan
   use, intrinsic :: iso_c_binding, only : c_associated, c_char, c_double, c_f_pointer, c_int, c_int64_t, c_loc, &
      & c_null_char, c_null_ptr, c_ptr
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_text, only : for_c, for_files, reader
   use cnn_library_arrays, only : array_at, array_type
   use cnn_library_layers, only : layer
   use cnn_library_network, only : network_type
   use cnn_operations_attributes, only : attributes_from, attributes_type
   use cnn_optimizers_optimizer, only : optimizer_type, setting_type
   use cnn_optimizers_registry, only : make_optimizer
   implicit none
   private

   public :: cnn_add, cnn_array, cnn_build, cnn_compute_gradients, cnn_forward, cnn_free, cnn_get, cnn_get_gradient, &
      & cnn_get_gradients, cnn_load, cnn_new, cnn_parameter_count, cnn_pull_back, cnn_save, cnn_set, &
      & cnn_set_gradients, cnn_set_training, cnn_step, cnn_update

   !> Characters of a message, with the zero behind it: CNN_MESSAGE
   integer, parameter :: message_length = 512

   type, bind(C) :: cnn_array
      !> Of the first element
      type(c_ptr) :: data = c_null_ptr
      !> One extent for each dimension, the slowest first
      type(c_ptr) :: shape = c_null_ptr
      !> How many
      integer(c_int) :: rank = 0_c_int
      !> CNN_FLOAT32 or CNN_FLOAT64
      integer(c_int) :: dtype = 0_c_int
      !> 1 in a GPU's memory, else 0
      integer(c_int) :: on_device = 0_c_int
   end type cnn_array

contains

   !> A network without layers; null where there is no memory
   type(c_ptr) function cnn_new() bind(C, name="cnn_new")
      type(network_type), pointer :: network
      integer :: status
      cnn_new = c_null_ptr
      allocate (network, stat=status)
      if (status == 0) cnn_new = c_loc(network)
   end function cnn_new

   subroutine cnn_free(network) bind(C, name="cnn_free")
      !> Null is nothing
      type(c_ptr), value :: network
      type(network_type), pointer :: found
      if (.not. c_associated(network)) return
      call c_f_pointer(network, found)
      deallocate (found)
   end subroutine cnn_free

   integer(c_int) function cnn_add(network, name, kind, settings, inputs, message) bind(C, name="cnn_add")
      !> That is not built yet
      type(c_ptr), value :: network
      !> The layer's
      type(c_ptr), value :: name
      !> Its type in exchange files
      type(c_ptr), value :: kind
      !> name=numbers, blanks between them; may be null
      type(c_ptr), value :: settings
      !> Names with commas between them; null: the layer before
      type(c_ptr), value :: inputs
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      character(len=:), allocatable :: layer_name, layer_kind, numbers, taken
      call read_text(name, "", layer_name)
      call read_text(kind, "", layer_kind)
      call read_text(settings, "", numbers)
      call read_text(inputs, "", taken)
      call find(network, found, error)
      if (.not. allocated(error)) call found%add(layer_name, layer(layer_kind, numbers), taken)
      call hand_over(error, message, cnn_add)
   end function cnn_add

   integer(c_int) function cnn_build(network, loss, device, precision, seed, message) bind(C, name="cnn_build")
      !> With all its layers
      type(c_ptr), value :: network
      !> Type of exchange files with its settings, "huber delta=0.5"; null: mse
      type(c_ptr), value :: loss
      !> Name with its options; null: cpu
      type(c_ptr), value :: device
      !> float32 or float64; null: float32
      type(c_ptr), value :: precision
      !> Of the first parameters and masks
      integer(c_int64_t), value :: seed
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      character(len=:), allocatable :: criterion, place, wanted
      call read_text(loss, "mse", criterion)
      call read_text(device, "cpu", place)
      call read_text(precision, "float32", wanted)
      call find(network, found, error)
      if (.not. allocated(error)) call found%build(error, loss=criterion, device=place, precision=wanted, seed=seed)
      call hand_over(error, message, cnn_build)
   end function cnn_build

   integer(c_int) function cnn_load(network, path, device, precision, message) bind(C, name="cnn_load")
      !> Any; what it was is gone
      type(c_ptr), value :: network
      !> Name of the file
      type(c_ptr), value :: path
      !> Name with its options; null: cpu
      type(c_ptr), value :: device
      !> float32 or float64; null: the file's
      type(c_ptr), value :: precision
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      character(len=:), allocatable :: file, place, wanted
      call read_text(path, "", file)
      call read_text(device, "cpu", place)
      call read_text(precision, "", wanted)
      call find(network, found, error)
      if (.not. allocated(error)) call found%load(file, error, device=place, precision=wanted)
      call hand_over(error, message, cnn_load)
   end function cnn_load

   integer(c_int) function cnn_save(network, path, optimizer, message) bind(C, name="cnn_save")
      !> That is built
      type(c_ptr), value :: network
      !> Name of the file
      type(c_ptr), value :: path
      !> As of `cnn_step`
      type(c_ptr), value :: optimizer
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      class(optimizer_type), allocatable :: made
      type(error_type), allocatable :: error
      character(len=:), allocatable :: file, text
      call read_text(path, "", file)
      call read_text(optimizer, "", text)
      call find(network, found, error)
      if (.not. allocated(error)) call make(text, made, error)
      if (.not. allocated(error)) call found%save(file, made, error)
      call hand_over(error, message, cnn_save)
   end function cnn_save

   integer(c_int) function cnn_set_training(network, training, message) bind(C, name="cnn_set_training")
      !> That is built
      type(c_ptr), value :: network
      !> 1 as in training, 0 as after it
      integer(c_int), value :: training
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      call find(network, found, error)
      if (.not. allocated(error)) call found%set_training(training /= 0, error)
      call hand_over(error, message, cnn_set_training)
   end function cnn_set_training

   integer(c_int) function cnn_forward(network, x, y, message) bind(C, name="cnn_forward")
      !> That is built
      type(c_ptr), value :: network
      !> Input
      type(c_ptr), value :: x
      !> Output, is overwritten
      type(c_ptr), value :: y
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      call find(network, found, error)
      if (.not. allocated(error)) call found%forward(described(x), described(y), error)
      call hand_over(error, message, cnn_forward)
   end function cnn_forward

   integer(c_int) function cnn_step(network, x, target, optimizer, loss, message) bind(C, name="cnn_step")
      !> That is built
      type(c_ptr), value :: network
      !> Input
      type(c_ptr), value :: x
      !> What the output should be
      type(c_ptr), value :: target
      !> Its type in exchange files and its settings: adam lr=0.001
      type(c_ptr), value :: optimizer
      !> Of the parameters before the step, or null
      type(c_ptr), value :: loss
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      class(optimizer_type), allocatable :: made
      type(error_type), allocatable :: error
      character(len=:), allocatable :: text
      real(c_double), pointer :: wanted
      real(c_double) :: found_loss
      call read_text(optimizer, "", text)
      found_loss = 0.0_c_double
      call find(network, found, error)
      if (.not. allocated(error)) call make(text, made, error)
      if (.not. allocated(error)) call found%step(described(x), described(target), made, found_loss, error)
      if (c_associated(loss)) then
         call c_f_pointer(loss, wanted)
         wanted = found_loss
      end if
      call hand_over(error, message, cnn_step)
   end function cnn_step

   integer(c_int) function cnn_pull_back(network, x, dy, dx, message) bind(C, name="cnn_pull_back")
      !> That is built
      type(c_ptr), value :: network
      !> Input
      type(c_ptr), value :: x
      !> Gradient of what is wanted with respect to the output
      type(c_ptr), value :: dy
      !> Gradient with respect to the input, is overwritten
      type(c_ptr), value :: dx
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      call find(network, found, error)
      if (.not. allocated(error)) call found%pull_back(described(x), described(dy), described(dx), error)
      call hand_over(error, message, cnn_pull_back)
   end function cnn_pull_back

   integer(c_int) function cnn_get(network, name, values, message) bind(C, name="cnn_get")
      !> That is built
      type(c_ptr), value :: network
      !> layer.weight, layer.bias, layer.running_mean, ...
      type(c_ptr), value :: name
      !> Is overwritten
      type(c_ptr), value :: values
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      character(len=:), allocatable :: text
      call read_text(name, "", text)
      call find(network, found, error)
      if (.not. allocated(error)) call found%get(text, described(values), error)
      call hand_over(error, message, cnn_get)
   end function cnn_get

   integer(c_int) function cnn_set(network, name, values, message) bind(C, name="cnn_set")
      !> That is built
      type(c_ptr), value :: network
      !> layer.weight, layer.bias, layer.running_mean, ...
      type(c_ptr), value :: name
      !> Its new values
      type(c_ptr), value :: values
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      character(len=:), allocatable :: text
      call read_text(name, "", text)
      call find(network, found, error)
      if (.not. allocated(error)) call found%set(text, described(values), error)
      call hand_over(error, message, cnn_set)
   end function cnn_set

   integer(c_int) function cnn_get_gradient(network, name, values, message) bind(C, name="cnn_get_gradient")
      !> After a step or `cnn_pull_back`
      type(c_ptr), value :: network
      !> layer.weight, layer.bias, layer, or input
      type(c_ptr), value :: name
      !> Is overwritten
      type(c_ptr), value :: values
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      character(len=:), allocatable :: text
      call read_text(name, "", text)
      call find(network, found, error)
      if (.not. allocated(error)) call found%get_gradient(text, described(values), error)
      call hand_over(error, message, cnn_get_gradient)
   end function cnn_get_gradient

   integer(c_int) function cnn_compute_gradients(network, x, target, loss, message) &
         & bind(C, name="cnn_compute_gradients")
      !> That is built
      type(c_ptr), value :: network
      !> Input
      type(c_ptr), value :: x
      !> What the output should be
      type(c_ptr), value :: target
      !> Of the parameters as they are, or null
      type(c_ptr), value :: loss
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      real(c_double), pointer :: wanted
      real(c_double) :: found_loss
      found_loss = 0.0_c_double
      call find(network, found, error)
      if (.not. allocated(error)) call found%compute_gradients(described(x), described(target), found_loss, error)
      if (c_associated(loss)) then
         call c_f_pointer(loss, wanted)
         wanted = found_loss
      end if
      call hand_over(error, message, cnn_compute_gradients)
   end function cnn_compute_gradients

   integer(c_int) function cnn_parameter_count(network, count, message) bind(C, name="cnn_parameter_count")
      !> That is built
      type(c_ptr), value :: network
      !> Numbers that it learns, or null
      type(c_ptr), value :: count
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      integer(c_int), pointer :: wanted
      type(error_type), allocatable :: error
      call find(network, found, error)
      if (c_associated(count)) then
         call c_f_pointer(count, wanted)
         wanted = 0_c_int
         if (.not. allocated(error)) wanted = int(found%parameter_count(), c_int)
      end if
      call hand_over(error, message, cnn_parameter_count)
   end function cnn_parameter_count

   integer(c_int) function cnn_get_gradients(network, values, message) bind(C, name="cnn_get_gradients")
      !> After `cnn_compute_gradients`, a step or `cnn_pull_back`
      type(c_ptr), value :: network
      !> Of one dimension, is overwritten
      type(c_ptr), value :: values
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      call find(network, found, error)
      if (.not. allocated(error)) call found%get_gradients(described(values), error)
      call hand_over(error, message, cnn_get_gradients)
   end function cnn_get_gradients

   integer(c_int) function cnn_set_gradients(network, values, message) bind(C, name="cnn_set_gradients")
      !> After `cnn_compute_gradients`, a step or `cnn_pull_back`
      type(c_ptr), value :: network
      !> Of one dimension
      type(c_ptr), value :: values
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      type(error_type), allocatable :: error
      call find(network, found, error)
      if (.not. allocated(error)) call found%set_gradients(described(values), error)
      call hand_over(error, message, cnn_set_gradients)
   end function cnn_set_gradients

   integer(c_int) function cnn_update(network, optimizer, message) bind(C, name="cnn_update")
      !> With gradients
      type(c_ptr), value :: network
      !> As of `cnn_step`
      type(c_ptr), value :: optimizer
      !> Room for a message, or null
      type(c_ptr), value :: message
      type(network_type), pointer :: found
      class(optimizer_type), allocatable :: made
      type(error_type), allocatable :: error
      character(len=:), allocatable :: text
      call read_text(optimizer, "", text)
      call find(network, found, error)
      if (.not. allocated(error)) call make(text, made, error)
      if (.not. allocated(error)) call found%update(made, error)
      call hand_over(error, message, cnn_update)
   end function cnn_update

   subroutine find(network, found, error)
      !> Of `cnn_new`
      type(c_ptr), intent(in) :: network
      !> What it points to
      type(network_type), pointer, intent(out) :: found
      !> Null
      type(error_type), allocatable, intent(out) :: error
      nullify (found)
      ! Until `hand_over`
      reader = for_c
      if (c_associated(network)) then
         call c_f_pointer(network, found)
      else
         call fail(error, "network: a null pointer, expected one of cnn_new")
      end if
   end subroutine find

   !> An array as Fortran has it; what cannot be is refused by whom it is given to
   type(array_type) function described(address)
      !> A cnn_array, or null
      type(c_ptr), intent(in) :: address
      type(cnn_array), pointer :: array
      integer(c_int), pointer :: extents(:)
      integer, allocatable :: reversed(:)
      if (.not. c_associated(address)) return
      call c_f_pointer(address, array)
      allocate (reversed(max(array%rank, 0)), source=0)
      if (c_associated(array%shape)) then
         call c_f_pointer(array%shape, extents, [size(reversed)])
         reversed = extents(size(reversed):1:-1)
      end if
      described = array_at(array%data, array%dtype, reversed)
      described%on_device = array%on_device /= 0
   end function described

   !> An optimizer from a text
   subroutine make(text, optimizer, error)
      !> Its type, and its settings that are not torch's defaults: `sgd lr=0.1 momentum=0.9`
      character(len=*), intent(in) :: text
      !> The new one
      class(optimizer_type), allocatable, intent(out) :: optimizer
      !> No such optimizer or setting, or a setting that is out of its range
      type(error_type), allocatable, intent(out) :: error
      type(attributes_type) :: given
      type(setting_type), allocatable :: known(:)
      integer :: i, j, k
      i = index(text//" ", " ")
      call make_optimizer(text(:i - 1), optimizer, error)
      if (allocated(error)) return
      given = attributes_from(text(min(i, len(text) + 1):))
      allocate (known, source=optimizer%settings())
      do i = 1, size(given%items)
         do j = 1, size(known)
            if (trim(known(j)%name) == given%items(i)%name .and. size(given%items(i)%numbers) == 1) exit
         end do
         if (j > size(known)) then
            call fail(error, "optimizer "//text//": no setting "//given%items(i)%name//" with one number")
         else if (ieee_is_nan(given%items(i)%numbers(1))) then
            call fail(error, "optimizer "//text//": "//given%items(i)%name//" is no number, expected one")
         else if (any([(given%items(k)%name == given%items(i)%name, k=1, i - 1)])) then
            call fail(error, "optimizer "//text//": "//given%items(i)%name//" is there twice, expected once")
         end if
         if (allocated(error)) return
         known(j)%value = given%items(i)%numbers(1)
      end do
      call optimizer%set(real(known%value, dp), error)
   end subroutine make

   !> A text of C
   subroutine read_text(pointer, default, text)
      !> To letters with a zero behind them
      type(c_ptr), intent(in) :: pointer
      !> Where it is null or empty
      character(len=*), intent(in) :: default
      !> Not a function: see cnn_core_text
      character(len=:), allocatable, intent(out) :: text
      character(kind=c_char), pointer :: letters(:)
      integer :: i, n
      interface
         !> The C library's
         pure function c_strlen(text) bind(C, name="strlen") result(length)
            use, intrinsic :: iso_c_binding, only : c_ptr, c_size_t
            implicit none
            !> With a zero behind it
            type(c_ptr), value :: text
            integer(c_size_t) :: length
         end function c_strlen
      end interface
      text = default
      if (.not. c_associated(pointer)) return
      n = int(c_strlen(pointer))
      if (n == 0) return
      call c_f_pointer(pointer, letters, [n])
      text = repeat(" ", n)
      do i = 1, n
         text(i:i) = letters(i)
      end do
   end subroutine read_text

   subroutine hand_over(error, message, status)
      !> Not allocated where all is well
      type(error_type), allocatable, intent(in) :: error
      !> Room for a text, or null
      type(c_ptr), intent(in) :: message
      !> 0 good, 1 failed, 2 a training diverges
      integer(c_int), intent(out) :: status
      character(kind=c_char), pointer :: letters(:)
      integer :: i, n
      reader = for_files
      status = 0_c_int
      n = 0
      if (allocated(error)) then
         status = merge(2_c_int, 1_c_int, error%diverged)
         n = min(len(error%message), message_length - 1)
      end if
      if (.not. c_associated(message)) return
      call c_f_pointer(message, letters, [message_length])
      do i = 1, n
         letters(i) = error%message(i:i)
      end do
      letters(n + 1) = c_null_char
   end subroutine hand_over

end module cnn_library_c_interface
