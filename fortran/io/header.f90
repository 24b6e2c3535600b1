! SPDX-License-Identifier: MIT
!> What an exchange file says of itself: attributes of / and of /optimizer. docs/exchange-file.md has their names.
module cnn_io_header
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_name
   use cnn_core_sgd, only : sgd_type
   use cnn_core_text, only : to_text
   use cnn_io_format, only : format_name
   use cnn_io_hdf5_file, only : hdf5_file_type
   implicit none
   private

   public :: read_format, read_optimizer, write_header

contains

   !> No error for an exchange file of version 1, or up to the newest
   subroutine read_format(file, newest, version, error)
      !> A file, open to read
      type(hdf5_file_type), intent(in) :: file
      !> Version up to which files are taken: 1 or 2
      integer, intent(in) :: newest
      !> Of the file; 1 after an error
      integer, intent(out) :: version
      !> No exchange file, or one of another version
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: format, found, known
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
      if (number >= 1.0_dp .and. number <= newest) version = nint(number)
      ! written so that NaN is refused
      if (.not. abs(number - version) <= 0.0_dp) then
         found = to_text(number)
         if (abs(number - anint(number)) <= 0.0_dp .and. abs(number) < huge(1)) found = to_text(nint(number))
         known = "version 1"
         if (newest > 1) known = "versions 1 and 2"
         call fail(error, file%path//": format_version is "//found//", this program reads "//known)
      end if
   end subroutine read_format

   subroutine read_optimizer(file, sgd, error)
      !> An exchange file, open to read
      type(hdf5_file_type), intent(in) :: file
      !> Settings of the optimizer
      type(sgd_type), intent(inout) :: sgd
      !> Missing or unusable setting
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: kind
      real(dp) :: nesterov
      call file%read_text_attribute("/optimizer", "type", kind, error)
      if (allocated(error)) return
      if (kind /= "sgd") then
         call fail(error, file%path//": optimizer type is "//kind//", expected sgd")
         return
      end if
      call file%read_number("/optimizer", "lr", sgd%lr, error)
      if (allocated(error)) return
      call file%read_number("/optimizer", "momentum", sgd%momentum, error)
      if (allocated(error)) return
      call file%read_number("/optimizer", "dampening", sgd%dampening, error)
      if (allocated(error)) return
      call file%read_number("/optimizer", "weight_decay", sgd%weight_decay, error)
      if (allocated(error)) return
      call file%read_number("/optimizer", "nesterov", nesterov, error)
      if (allocated(error)) return
      sgd%nesterov = abs(nesterov - 1.0_dp) <= 0.0_dp
      if (.not. (sgd%nesterov .or. abs(nesterov) <= 0.0_dp)) then
         call fail(error, file%path//": attribute nesterov of /optimizer is neither 0 nor 1")
         return
      end if
      call sgd%check(error)
      if (allocated(error)) error%message = file%path//": "//error%message
   end subroutine read_optimizer

   !> Of a result or a saved network, whose producer is the candidate
   subroutine write_header(file, producer, version, dtype, backend, sgd, error)
      !> An exchange file, created
      type(hdf5_file_type), intent(in) :: file
      !> Program that writes it, in words
      character(len=*), intent(in) :: producer
      !> Of the format
      integer, intent(in) :: version
      !> Element type of the tensors
      integer, intent(in) :: dtype
      !> What computes them
      class(backend_type), intent(in) :: backend
      !> Settings of the optimizer
      type(sgd_type), intent(in) :: sgd
      !> Error of the file
      type(error_type), allocatable, intent(out) :: error
      call put_text(file, "/", "format", format_name, error)
      call put_number(file, "/", "format_version", real(version, dp), error)
      call put_text(file, "/", "producer", producer, error)
      call put_text(file, "/", "role", "candidate", error)
      call put_text(file, "/", "precision", dtype_name(dtype), error)
      call put_text(file, "/", "device", backend%name, error)
      call put_text(file, "/", "math_mode", backend%math_mode(dtype), error)
      call put_text(file, "/optimizer", "type", "sgd", error)
      call put_number(file, "/optimizer", "lr", sgd%lr, error)
      call put_number(file, "/optimizer", "momentum", sgd%momentum, error)
      call put_number(file, "/optimizer", "dampening", sgd%dampening, error)
      call put_number(file, "/optimizer", "weight_decay", sgd%weight_decay, error)
      call put_number(file, "/optimizer", "nesterov", merge(1.0_dp, 0.0_dp, sgd%nesterov), error)
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
      !> Error of the file
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
      !> Error of the file
      type(error_type), allocatable, intent(inout) :: error
      if (allocated(error)) return
      call file%write_number(object, name, value, error)
   end subroutine put_number

end module cnn_io_header
