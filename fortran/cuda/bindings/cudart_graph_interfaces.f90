! SPDX-License-Identifier: MIT
!> The functions of the CUDA runtime that capture work of a stream as a graph and launch it, as abstract interfaces.
!>
!> Between cudaStreamBeginCapture and cudaStreamEndCapture what is queued on the stream does not run, but becomes a
!> graph; cudaGraphInstantiate makes it executable, and cudaGraphLaunch queues all of it at once, as often as wanted.
!> Names, and the order of the arguments, are those of C, so that each can be read beside NVIDIA's documentation.
!> Source.  CUDA Runtime API reference, stream management and graph management.
module cnn_cuda_bindings_cudart_graph_interfaces
   use, intrinsic :: iso_c_binding, only : c_int, c_long_long, c_ptr
   implicit none
   private

   public :: cudaStreamBeginCapture, cudaStreamEndCapture, cudaStreamIsCapturing, cudaGraphInstantiate, &
      & cudaGraphUpload, cudaGraphLaunch, cudaGraphExecDestroy, cudaGraphDestroy

   abstract interface
      !> From now on work of this stream, which is not the default one, is captured; `mode` is a
      !> `cudaStreamCaptureMode` and says whose other calls are forbidden meanwhile
      function cudaStreamBeginCapture(stream, mode) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Not the default one
         type(c_ptr), value :: stream
         !> A `cudaStreamCaptureMode`: whose other calls are forbidden meanwhile
         integer(c_int), value :: mode
         integer(c_int) :: status
      end function cudaStreamBeginCapture
      !> The stream runs work again; a capture that went wrong gives an error and no graph, and ends all the same
      function cudaStreamEndCapture(stream, p_graph) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The one whose capture began, in the same thread
         type(c_ptr), value :: stream
         !> The captured work, which the caller frees by cudaGraphDestroy
         type(c_ptr), intent(out) :: p_graph
         integer(c_int) :: status
      end function cudaStreamEndCapture
      !> A `cudaStreamCaptureStatus`: asking disturbs no capture
      function cudaStreamIsCapturing(stream, p_capture_status) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The one that is asked about
         type(c_ptr), value :: stream
         !> A `cudaStreamCaptureStatus`: none, active, or invalidated by a wrong call
         integer(c_int), intent(out) :: p_capture_status
         integer(c_int) :: status
      end function cudaStreamIsCapturing
      !> An executable copy of the graph, which the caller frees by cudaGraphExecDestroy; the arguments are those
      !> since CUDA 12
      function cudaGraphInstantiate(p_graph_exec, graph, flags) result(status) bind(C)
         import :: c_int, c_long_long, c_ptr
         implicit none
         !> The executable graph
         type(c_ptr), intent(out) :: p_graph_exec
         !> What cudaStreamEndCapture gave
         type(c_ptr), value :: graph
         !> A `cudaGraphInstantiateFlags`; 0 for none
         integer(c_long_long), value :: flags
         integer(c_int) :: status
      end function cudaGraphInstantiate
      !> Prepares the device for the graph, so that its first launch does not take longer; runs nothing of it
      function cudaGraphUpload(graph_exec, stream) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudaGraphInstantiate gave
         type(c_ptr), value :: graph_exec
         !> The upload is queued there
         type(c_ptr), value :: stream
         integer(c_int) :: status
      end function cudaGraphUpload
      !> Queues the whole graph, behind the work of the stream and behind its own launch before
      function cudaGraphLaunch(graph_exec, stream) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudaGraphInstantiate gave
         type(c_ptr), value :: graph_exec
         !> Any of the device; it need not be the one that was captured
         type(c_ptr), value :: stream
         integer(c_int) :: status
      end function cudaGraphLaunch
      !> Does not wait: what is queued still runs
      function cudaGraphExecDestroy(graph_exec) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudaGraphInstantiate gave
         type(c_ptr), value :: graph_exec
         integer(c_int) :: status
      end function cudaGraphExecDestroy
      !> Frees the graph; executable copies of it live on
      function cudaGraphDestroy(graph) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudaStreamEndCapture gave
         type(c_ptr), value :: graph
         integer(c_int) :: status
      end function cudaGraphDestroy
   end interface

end module cnn_cuda_bindings_cudart_graph_interfaces
