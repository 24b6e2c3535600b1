! SPDX-License-Identifier: MIT
!> The model of an exchange file: groups and attributes. docs/exchange-file.md has their names.
module cnn_io_model
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_text, only : name_type, to_text
   use cnn_io_hdf5_file, only : hdf5_file_type
   use cnn_io_hdf5_groups, only : attribute_names, group_members
   use cnn_model_description, only : check_name, description_type
   use cnn_model_network, only : layer_view_type, network_type
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_losses, only : criterion_type
   implicit none
   private

   public :: read_model, write_model

   character(len=*), parameter :: model_path = "/model", root = "/model/layers", &
      & loss_path = "/model/loss"

contains

   !> What the file's network is made of
   subroutine read_model(file, description, error)
      !> An exchange file of version 2, open
      type(hdf5_file_type), intent(in) :: file
      !> Its operations and loss
      type(description_type), intent(out) :: description
      !> Damaged model, or an unknown operation
      type(error_type), allocatable, intent(out) :: error
      type(name_type), allocatable :: names(:)
      integer :: i

      ! gfortran takes its bounds for uninitialised without
      allocate (names(0))
      call read_loss(file, description, error)
      if (allocated(error)) return
      call ordered_names(file, names, error)
      if (.not. allocated(error)) call expect_computed(file, names, error)
      if (allocated(error)) return
      do i = 1, size(names)
         call read_layer(file, names(i)%text, description, error)
         if (allocated(error)) return
      end do
      call attribute_names(file, model_path, names, error)
      if (allocated(error)) return
      do i = 1, size(names)
         if (names(i)%text == "inputs") call file%read_text_attribute(model_path, "inputs", description%inputs, error)
      end do
   end subroutine read_model

   !> Layers and loss of a network
   subroutine write_model(file, network, error)
      !> An exchange file, being written
      type(hdf5_file_type), intent(in) :: file
      !> Whose model is written
      class(network_type), intent(in) :: network
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      type(criterion_type) :: criterion
      character(len=:), allocatable :: path
      integer :: i, j

      do i = 1, network%layer_count()
         call network%view(i, layer)
         path = root//"/"//layer%name
         call file%write_numbers(path, "index", [real(i - 1, dp)], error)
         if (.not. allocated(error)) call file%write_text_attribute(path, "type", layer%kind, error)
         if (.not. allocated(error)) call file%write_text_attribute(path, "inputs", layer%inputs, error)
         do j = 1, size(layer%attributes%items)
            if (allocated(error)) return
            call file%write_numbers(path, layer%attributes%items(j)%name, layer%attributes%items(j)%numbers, error)
         end do
         if (allocated(error)) return
      end do
      if (allocated(network%inputs)) call file%write_text_attribute(model_path, "inputs", network%inputs, error)
      if (allocated(error)) return
      call network%find_criterion(criterion)
      call file%write_text_attribute(loss_path, "type", trim(criterion%kind), error)
      if (.not. allocated(error)) call file%write_text_attribute(loss_path, "reduction", &
         & trim(merge("mean", "sum ", criterion%mean)), error)
      do i = 1, size(criterion%attributes%items)
         if (allocated(error)) return
         associate (item => criterion%attributes%items(i))
            call file%write_numbers(loss_path, item%name, item%numbers, error)
         end associate
      end do
   end subroutine write_model

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

   !> Refuse operations that only PyTorch has: all of them at once, each with the first layer that has it
   subroutine expect_computed(file, names, error)
      !> An exchange file of version 2, open
      type(hdf5_file_type), intent(in) :: file
      !> Of all layers
      type(name_type), intent(in) :: names(:)
      !> Names the operations, each with its layer
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: kind, program, lacking
      integer :: i, first, length

      lacking = ""
      do i = 1, size(names)
         call file%read_text_attribute(root//"/"//names(i)%text, "type", kind, error)
         if (allocated(error)) return
         if (kind /= "aten") cycle
         call file%read_text_attribute(root//"/"//names(i)%text, "program", program, error)
         if (allocated(error)) return
         do
            ! A call begins with the name of its operation
            first = index(program, '["aten.')
            if (first == 0) exit
            program = program(first + 2:)
            length = index(program, '"') - 1
            if (length < 0) exit
            if (index(lacking, " "//program(:length)//" (") > 0) cycle
            lacking = lacking//", "//program(:length)//" (layer "//names(i)%text//")"
         end do
         if (lacking == "") lacking = ", aten (layer "//names(i)%text//")"
      end do
      if (lacking == "") return
      call fail(error, file%path//": the network has operations that this library does not compute: "//lacking(3:)// &
         & "; PyTorch computes them, and bridge.compare judges who does")
   end subroutine expect_computed

   !> A layer with its hyperparameters and names of its inputs
   subroutine read_layer(file, name, description, error)
      !> An exchange file of version 2, open
      type(hdf5_file_type), intent(in) :: file
      !> Of the layer
      character(len=*), intent(in) :: name
      !> With the layers before it; it is added
      type(description_type), intent(inout) :: description
      !> Unknown operation, or an attribute that is unknown, missing or out of its range
      type(error_type), allocatable, intent(out) :: error
      type(attributes_type) :: given
      character(len=:), allocatable :: path, kind, inputs

      path = root//"/"//name
      call expect_attributes_alone(file, path, "layer "//name, error)
      if (allocated(error)) return
      call file%read_text_attribute(path, "type", kind, error)
      if (allocated(error)) return
      inputs = ""
      if (file%has_attribute(path, "inputs")) call file%read_text_attribute(path, "inputs", inputs, error)
      if (allocated(error)) return
      call read_attributes(file, path, name, given, error)
      if (allocated(error)) return
      call description%add(kind, name, inputs, given, error)
      if (allocated(error)) error%message = file%path//": "//error%message
   end subroutine read_layer

   !> Refuse a group with members
   subroutine expect_attributes_alone(file, path, what, error)
      !> An exchange file of version 2, open
      type(hdf5_file_type), intent(in) :: file
      !> Of the group
      character(len=*), intent(in) :: path
      !> Of what it is
      character(len=*), intent(in) :: what
      !> Names the first member
      type(error_type), allocatable, intent(out) :: error
      type(name_type), allocatable :: inside(:)
      ! gfortran's debug build takes its bounds for uninitialised without
      allocate (inside(0))
      call group_members(file, path, inside, error)
      if (allocated(error)) return
      if (size(inside) > 0) call fail(error, file%path//": model: "//what//" has the member '"//inside(1)%text// &
         & "', expected attributes alone")
   end subroutine expect_attributes_alone

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
         if (any(names(i)%text == [character(len=9) :: "index", "type", "inputs", "reduction"])) cycle
         n = n + 1
         given%items(n)%name = names(i)%text
         call file%read_numbers(path, names(i)%text, given%items(n)%numbers, error)
         if (allocated(error)) return
      end do
      given%items = given%items(:n)
   end subroutine read_attributes

   subroutine read_loss(file, description, error)
      !> An exchange file of version 2, open
      type(hdf5_file_type), intent(in) :: file
      !> Its loss is set
      type(description_type), intent(inout) :: description
      !> What is missing or unknown
      type(error_type), allocatable, intent(out) :: error
      type(attributes_type) :: given
      character(len=:), allocatable :: kind, reduction
      call expect_attributes_alone(file, loss_path, "loss", error)
      if (allocated(error)) return
      call file%read_text_attribute(loss_path, "type", kind, error)
      if (allocated(error)) return
      call file%read_text_attribute(loss_path, "reduction", reduction, error)
      if (allocated(error)) return
      call read_attributes(file, loss_path, kind, given, error)
      if (.not. allocated(error)) call description%criterion%set(kind, reduction, error, given)
      if (allocated(error)) error%message = file%path//": "//error%message
   end subroutine read_loss

end module cnn_io_model
