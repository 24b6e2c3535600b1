! SPDX-License-Identifier: MIT
!> The functions of cuDNN's graph API, as abstract interfaces.
!>
!> Names, and the order of the arguments, are those of C, so that each can be read beside NVIDIA's documentation.
!> Source.  cuDNN 9 backend API reference.
module cnn_cudnn_graph_interfaces
   use, intrinsic :: iso_c_binding, only : c_int, c_int64_t, c_ptr
   implicit none
   private

   public :: cudnnBackendCreateDescriptor, cudnnBackendDestroyDescriptor, cudnnBackendExecute, cudnnBackendFinalize, &
      & cudnnBackendGetAttribute, cudnnBackendSetAttribute

   abstract interface
      !> A descriptor of this type, to be filled in and finalized
      function cudnnBackendCreateDescriptor(descriptor_type, descriptor) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         integer(c_int), value :: descriptor_type
         type(c_ptr), intent(out) :: descriptor
         integer(c_int) :: status
      end function cudnnBackendCreateDescriptor
      function cudnnBackendDestroyDescriptor(descriptor) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: descriptor
         integer(c_int) :: status
      end function cudnnBackendDestroyDescriptor
      !> Check what was set; from now on the descriptor does not change
      function cudnnBackendFinalize(descriptor) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: descriptor
         integer(c_int) :: status
      end function cudnnBackendFinalize
      !> Copy `element_count` elements of that type into the descriptor
      function cudnnBackendSetAttribute(descriptor, attribute_name, attribute_type, element_count, &
            & array_of_elements) result(status) bind(C)
         import :: c_int, c_int64_t, c_ptr
         implicit none
         type(c_ptr), value :: descriptor, array_of_elements
         integer(c_int), value :: attribute_name, attribute_type
         integer(c_int64_t), value :: element_count
         integer(c_int) :: status
      end function cudnnBackendSetAttribute
      !> Copy at most `requested_element_count` elements out of it; with 0 only their number is told
      function cudnnBackendGetAttribute(descriptor, attribute_name, attribute_type, requested_element_count, &
            & element_count, array_of_elements) result(status) bind(C)
         import :: c_int, c_int64_t, c_ptr
         implicit none
         type(c_ptr), value :: descriptor, array_of_elements
         integer(c_int), value :: attribute_name, attribute_type
         integer(c_int64_t), value :: requested_element_count
         integer(c_int64_t), intent(out) :: element_count
         integer(c_int) :: status
      end function cudnnBackendGetAttribute
      !> Queue the plan on the handle's stream
      function cudnnBackendExecute(handle, execution_plan, variant_pack) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: handle, execution_plan, variant_pack
         integer(c_int) :: status
      end function cudnnBackendExecute
   end interface

end module cnn_cudnn_graph_interfaces
