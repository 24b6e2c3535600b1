! SPDX-License-Identifier: MIT
!> What an exchange file says of itself: attributes of / and of /optimizer. docs/exchange-file.md has their names.
module cnn_io_header
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_name
   use cnn_core_text, only : to_text
   use cnn_io_format, only : format_name, format_version
   use cnn_io_hdf5_file, only : hdf5_file_type
   use cnn_optimizers_optimizer, only : optimizer_type, setting_type
   use cnn_optimizers_registry, only : make_optimizer
   implicit none
   private

   public :: read_format, read_optimizer, write_header

contains

   !> No error for an exchange file of a version that is known
   subroutine read_format(file, version, error)
      !> A file, open to read
      type(hdf5_file_type), intent(in) :: file
      !> Of the file; 1 after an error
      integer, intent(out) :: version
      !> No exchange file, or one of another version
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: format, found
      real(dp) :: number

      version = 1
      call file%read_text_attribute("/", "format", format, error)
      if (allocated(error)) return
      if (format /= format_name) then
         call fail(error, file%path//": format is "//format//", expected "//format_name)
         return
      end if
      call file%read_number("/", "format_version", number, error)
      if (allocated(error)) return
      if (number >= 1.0_dp .and. number <= format_version) version = nint(number)
      ! written so that NaN is refused
      if (.not. abs(number - version) <= 0.0_dp) then
         found = to_text(number)
         if (abs(number - anint(number)) <= 0.0_dp .and. abs(number) < huge(1)) found = to_text(nint(number))
         call fail(error, file%path//": format_version is "//found//", this program reads versions 1 and 2")
      end if
   end subroutine read_format

   !> Files of version 1 know SGD alone
   subroutine read_optimizer(file, version, optimizer, error)
      !> An exchange file, open to read
      type(hdf5_file_type), intent(in) :: file
      !> Of its format
      integer, intent(in) :: version
      !> With its settings
      class(optimizer_type), allocatable, intent(out) :: optimizer
      !> Unknown optimizer, missing or unusable setting
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: kind
      type(setting_type), allocatable :: settings(:)
      real(dp), allocatable :: values(:)
      integer :: i
      call file%read_text_attribute("/optimizer", "type", kind, error)
      if (allocated(error)) return
      if (version == 1 .and. kind /= "sgd") then
         call fail(error, file%path//": optimizer type is "//kind//", expected sgd")
         return
      end if
      call make_optimizer(kind, optimizer, error)
      if (.not. allocated(error)) then
         allocate (settings, source=optimizer%settings())
         allocate (values(size(settings)))
         do i = 1, size(settings)
            call file%read_number("/optimizer", trim(settings(i)%name), values(i), error)
            if (allocated(error)) return
         end do
         call optimizer%set(values, error)
      end if
      if (allocated(error)) error%message = file%path//": "//error%message
   end subroutine read_optimizer

   !> Of a result or a saved network, whose producer is the candidate
   subroutine write_header(file, producer, dtype, backend, optimizer, error)
      !> An exchange file, created
      type(hdf5_file_type), intent(in) :: file
      !> Program that writes it, in words
      character(len=*), intent(in) :: producer
      !> Element type of the tensors
      integer, intent(in) :: dtype
      !> What computes them
      class(backend_type), intent(in) :: backend
      !> With its settings
      class(optimizer_type), intent(in) :: optimizer
      type(error_type), allocatable, intent(out) :: error
      type(setting_type), allocatable :: settings(:)
      integer :: i
      call put_text(file, "/", "format", format_name, error)
      call put_number(file, "/", "format_version", real(format_version, dp), error)
      call put_text(file, "/", "producer", producer, error)
      call put_text(file, "/", "role", "candidate", error)
      call put_text(file, "/", "precision", dtype_name(dtype), error)
      call put_text(file, "/", "device", backend%name, error)
      call put_text(file, "/", "math_mode", backend%math_mode(dtype), error)
      call put_text(file, "/optimizer", "type", optimizer%kind(), error)
      allocate (settings, source=optimizer%settings())
      do i = 1, size(settings)
         call put_number(file, "/optimizer", trim(settings(i)%name), settings(i)%value, error)
      end do
   end subroutine write_header

   !> A text attribute; nothing happens after an error
   subroutine put_text(file, object, name, text, error)
      !> An exchange file, created
      type(hdf5_file_type), intent(in) :: file
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> Its value
      character(len=*), intent(in) :: text
      type(error_type), allocatable, intent(inout) :: error
      if (allocated(error)) return
      call file%write_text_attribute(object, name, text, error)
   end subroutine put_text

   !> A number attribute; nothing happens after an error
   subroutine put_number(file, object, name, value, error)
      !> An exchange file, created
      type(hdf5_file_type), intent(in) :: file
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> Its value
      real(dp), intent(in) :: value
      type(error_type), allocatable, intent(inout) :: error
      if (allocated(error)) return
      call file%write_number(object, name, value, error)
   end subroutine put_number

end module cnn_io_header
