! SPDX-License-Identifier: MIT
!> The functions of cuDNN's graph API, as abstract interfaces.
!>
!> Names, and the order of the arguments, are those of C, so that each can be read beside NVIDIA's documentation.
!> Source.  cuDNN 9 backend API reference.
module cnn_cuda_bindings_cudnn_graph_interfaces
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
         !> A `cudnnBackendDescriptorType_t`
         integer(c_int), value :: descriptor_type
         !> The new descriptor, in host memory
         type(c_ptr), intent(out) :: descriptor
         integer(c_int) :: status
      end function cudnnBackendCreateDescriptor
      function cudnnBackendDestroyDescriptor(descriptor) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudnnBackendCreateDescriptor gave, finalized or not
         type(c_ptr), value :: descriptor
         integer(c_int) :: status
      end function cudnnBackendDestroyDescriptor
      !> Check what was set; from now on the descriptor does not change
      function cudnnBackendFinalize(descriptor) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> One whose attributes are set
         type(c_ptr), value :: descriptor
         integer(c_int) :: status
      end function cudnnBackendFinalize
      !> Copy `element_count` elements of that type into the descriptor
      function cudnnBackendSetAttribute(descriptor, attribute_name, attribute_type, element_count, &
            & array_of_elements) result(status) bind(C)
         import :: c_int, c_int64_t, c_ptr
         implicit none
         !> One that is not finalized
         type(c_ptr), value :: descriptor
         !> The first of them, *host*
         type(c_ptr), value :: array_of_elements
         !> A `cudnnBackendAttributeName_t`
         integer(c_int), value :: attribute_name
         !> The `cudnnBackendAttributeType_t` of the elements
         integer(c_int), value :: attribute_type
         !> Number of elements
         integer(c_int64_t), value :: element_count
         integer(c_int) :: status
      end function cudnnBackendSetAttribute
      !> Copy at most `requested_element_count` elements out of it; with 0 only their number is told
      function cudnnBackendGetAttribute(descriptor, attribute_name, attribute_type, requested_element_count, &
            & element_count, array_of_elements) result(status) bind(C)
         import :: c_int, c_int64_t, c_ptr
         implicit none
         !> One that is finalized
         type(c_ptr), value :: descriptor
         !> Where they are written, *host*; descriptors among them must be made already
         type(c_ptr), value :: array_of_elements
         !> A `cudnnBackendAttributeName_t`
         integer(c_int), value :: attribute_name
         !> The `cudnnBackendAttributeType_t` of the elements
         integer(c_int), value :: attribute_type
         !> Room in `array_of_elements`, in elements
         integer(c_int64_t), value :: requested_element_count
         !> How many elements the attribute has
         integer(c_int64_t), intent(out) :: element_count
         integer(c_int) :: status
      end function cudnnBackendGetAttribute
      !> Queue the plan on the handle's stream
      function cudnnBackendExecute(handle, execution_plan, variant_pack) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; the plan is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> A finalized plan
         type(c_ptr), value :: execution_plan
         !> A finalized list of the tensors' device addresses, and of the workspace's
         type(c_ptr), value :: variant_pack
         integer(c_int) :: status
      end function cudnnBackendExecute
   end interface

end module cnn_cuda_bindings_cudnn_graph_interfaces
