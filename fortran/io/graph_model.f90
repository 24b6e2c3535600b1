! SPDX-License-Identifier: MIT
!> The model of an exchange file of version 2: groups and attributes. docs/exchange-file.md has their names.
module cnn_io_graph_model
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_text, only : name_type, to_text
   use cnn_io_hdf5_file, only : hdf5_file_type
   use cnn_io_hdf5_groups, only : attribute_names, group_members
   use cnn_model_description, only : check_name
   use cnn_model_graph, only : graph_type
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_losses, only : criterion_type, loss_kinds
   use cnn_operations_operation, only : operation_type
   use cnn_operations_registry, only : make_operation
   implicit none
   private

   public :: read_graph

   character(len=*), parameter :: root = "/model/layers"

contains

   !> A graph with undefined weights from the file's model
   subroutine read_graph(file, dtype, device, graph, error)
      !> An exchange file of version 2, open
      type(hdf5_file_type), intent(in) :: file
      !> Element type, float32 or float64 of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> A graph of which nothing has been set
      type(graph_type), intent(inout) :: graph
      !> Damaged model, unknown operation or device, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(name_type), allocatable :: names(:)
      class(operation_type), allocatable :: operation
      integer :: i

      call read_loss(file, graph%criterion, error)
      if (allocated(error)) return
      call ordered_names(file, names, error)
      if (allocated(error)) return
      call graph%start(names, dtype, device, error)
      if (allocated(error)) return
      do i = 1, size(names)
         call read_node(file, names(i)%text, operation, error)
         if (allocated(error)) return
         call graph%add_node(operation, error)
         if (allocated(error)) exit
      end do
      if (.not. allocated(error)) call graph%finish(error)
      if (allocated(error)) error%message = file%path//": "//error%message
   end subroutine read_graph

   !> Names of all layers in the order of their computation
   subroutine ordered_names(file, names, error)
      !> An exchange file of version 2, open
      type(hdf5_file_type), intent(in) :: file
      !> The one with index 0 first
      type(name_type), allocatable, intent(out) :: names(:)
      !> No layers, one whose name or index is not allowed, or an index that is missing or there twice
      type(error_type), allocatable, intent(out) :: error
      type(name_type), allocatable :: found(:)
      real(dp) :: number
      integer :: i, place

      ! gfortran's debug build takes its bounds for uninitialised without
      allocate (found(0))
      call group_members(file, root, found, error)
      if (allocated(error)) return
      if (size(found) == 0) then
         call fail(error, file%path//": model: no layers, expected one or more")
         return
      end if
      allocate (names(size(found)))
      do i = 1, size(found)
         call check_name(found(i)%text, error)
         if (allocated(error)) then
            error%message = file%path//": "//error%message
            return
         end if
         call file%read_number(root//"/"//found(i)%text, "index", number, error)
         if (allocated(error)) return
         place = 0
         if (number >= 0.0_dp .and. number < size(found)) place = int(number) + 1
         if (abs(number + 1.0_dp - place) > 0.0_dp) place = 0
         if (place > 0) then
            if (allocated(names(place)%text)) place = 0
         end if
         if (place == 0) then
            call fail(error, file%path//": model: layer "//found(i)%text//" has index "//to_text(number)// &
               & ", expected 0, 1, 2, ..., each once")
            return
         end if
         names(place)%text = found(i)%text
      end do
   end subroutine ordered_names

   !> The operation of a layer with its hyperparameters and names of its inputs
   subroutine read_node(file, name, operation, error)
      !> An exchange file of version 2, open
      type(hdf5_file_type), intent(in) :: file
      !> Of the layer
      character(len=*), intent(in) :: name
      !> What it says
      class(operation_type), allocatable, intent(out) :: operation
      !> Unknown operation, or an attribute that is unknown, missing or out of its range
      type(error_type), allocatable, intent(out) :: error
      type(attributes_type) :: given
      character(len=:), allocatable :: path, text
      type(name_type), allocatable :: inside(:)

      path = root//"/"//name
      call group_members(file, path, inside, error)
      if (allocated(error)) return
      if (size(inside) > 0) then
         call fail(error, file%path//": model: layer "//name//" has the member '"//inside(1)%text// &
            & "', expected attributes alone")
         return
      end if
      call file%read_text_attribute(path, "type", text, error)
      if (allocated(error)) return
      call make_operation(name, text, operation, error)
      if (.not. allocated(error)) call read_attributes(file, path, name, given, error)
      if (.not. allocated(error)) call operation%read(given, error)
      if (.not. allocated(error)) call given%check_known(error)
      if (allocated(error)) then
         if (index(error%message, file%path) /= 1) error%message = file%path//": "//error%message
         return
      end if
      if (.not. file%has_attribute(path, "inputs")) return
      call file%read_text_attribute(path, "inputs", text, error)
      if (allocated(error)) return
      if (len(text) > 0) operation%inputs = split(text)
   end subroutine read_node

   !> The hyperparameters of a layer
   subroutine read_attributes(file, path, name, given, error)
      !> An exchange file of version 2, open
      type(hdf5_file_type), intent(in) :: file
      !> Of the layer's group
      character(len=*), intent(in) :: path
      !> Of the layer
      character(len=*), intent(in) :: name
      !> All but index, type and inputs
      type(attributes_type), intent(out) :: given
      !> One that is not a few numbers
      type(error_type), allocatable, intent(out) :: error
      type(name_type), allocatable :: names(:)
      integer :: i, n

      given%node = name
      call attribute_names(file, path, names, error)
      if (allocated(error)) return
      allocate (given%items(size(names)))
      n = 0
      do i = 1, size(names)
         if (any(names(i)%text == [character(len=6) :: "index", "type", "inputs"])) cycle
         n = n + 1
         given%items(n)%name = names(i)%text
         call file%read_numbers(path, names(i)%text, given%items(n)%numbers, error)
         if (allocated(error)) return
      end do
      given%items = given%items(:n)
   end subroutine read_attributes

   !> Names with commas between them
   function split(text) result(names)
      !> `one,two`
      character(len=*), intent(in) :: text
      type(name_type), allocatable :: names(:)
      integer :: i, first, n
      allocate (names(1 + count([(text(i:i) == ",", i=1, len(text))])))
      first = 1
      n = 1
      do i = 1, len(text)
         if (text(i:i) /= ",") cycle
         names(n)%text = text(first:i - 1)
         first = i + 1
         n = n + 1
      end do
      names(n)%text = text(first:)
   end function split

   subroutine read_loss(file, criterion, error)
      !> An exchange file of version 2, open
      type(hdf5_file_type), intent(in) :: file
      !> The loss
      type(criterion_type), intent(out) :: criterion
      !> What is missing or unknown
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: reduction
      type(name_type), allocatable :: inside(:)
      call group_members(file, "/model/loss", inside, error)
      if (allocated(error)) return
      if (size(inside) > 0) then
         call fail(error, file%path//": model: loss has the member '"//inside(1)%text//"', expected attributes alone")
         return
      end if
      call file%read_text_attribute("/model/loss", "type", criterion%kind, error)
      if (allocated(error)) return
      call file%read_text_attribute("/model/loss", "reduction", reduction, error)
      if (allocated(error)) return
      criterion%mean = reduction == "mean"
      if (.not. (any(loss_kinds == criterion%kind) .and. (criterion%mean .or. reduction == "sum"))) call fail(error, &
         & file%path//": model: loss is "//criterion%kind//" with the reduction "//reduction// &
         & ", expected mse, l1 or cross_entropy with mean or sum")
   end subroutine read_loss

end module cnn_io_graph_model
