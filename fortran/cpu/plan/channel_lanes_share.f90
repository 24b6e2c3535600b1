! SPDX-License-Identifier: MIT
!> How the work of a filter gradient with channels in the vector lanes (cnn_cpu_plan_channel_lanes) is divided among
!> threads.
!>
!> Sums of a chunk of the bands are added apart from those of others, and chunks do not depend on the number of threads;
!> slices of channels, which do, change no sum.
module cnn_cpu_plan_channel_lanes_share
   use cnn_core_kinds, only : i8
   use cnn_cpu_plan_channel_lanes, only : outer_type
   implicit none
   private

   public :: share_outer

   !> How the work is divided, for one length of vectors and number of threads
   type, public :: outer_share_type
      !> Vectors of transposed channels, and panels of them
      integer :: vectors = 0, panels = 0
      !> Bands are summed in so many chunks, apart from each other
      integer :: chunks = 1
      !> Slices of the panels and of the source's channels, and channels of such a slice
      integer :: panel_slices = 1, channel_slices = 1, slice_channels = 0
      !> Pieces of work
      integer :: items = 0
      !> Sums of a chunk
      integer(i8) :: elements = 0
      integer, private :: channels = 0
   contains
      procedure :: item => item_of
   end type outer_share_type

   !> A piece of work: chunks count from 1, groups and panels from 0, source channels are first + 1 .. last
   type, public :: outer_item_type
      integer :: chunk = 0, group = 0, first_panel = 0, last_panel = 0, first = 0, last = 0
   end type outer_item_type

contains

   !> The work in pieces: no more than the threads need, because what one slice packs another packs again
   pure type(outer_share_type) function share_outer(plan, lanes, most_vectors, threads) result(share)
      !> What is packed at once, and where its pixels and points lie
      type(outer_type), intent(in) :: plan
      !> Channels in a vector
      integer, intent(in) :: lanes
      !> Vectors of a panel
      integer, intent(in) :: most_vectors
      !> Number of threads
      integer, intent(in) :: threads
      integer, parameter :: most_chunks = 16, least_points = 96
      integer(i8), parameter :: most_elements = 2097152_i8
      integer :: wanted

      share%vectors = (plan%transposed_channels + lanes - 1)/lanes
      share%panels = (share%vectors + most_vectors - 1)/most_vectors
      share%elements = int(share%vectors*lanes, i8)*plan%points()*plan%groups
      share%chunks = int(min(int(plan%units(), i8), int(most_chunks, i8), max(1_i8, most_elements/share%elements)))
      share%channels = plan%source_channels
      if (threads > 1) then
         wanted = (2*threads + share%chunks*plan%groups - 1)/(share%chunks*plan%groups)
         share%panel_slices = min(share%panels, wanted)
         wanted = (wanted + share%panel_slices - 1)/share%panel_slices
         share%channel_slices = max(1, min(plan%source_channels, plan%points()/least_points, wanted))
      end if
      share%slice_channels = (plan%source_channels + share%channel_slices - 1)/share%channel_slices
      share%items = share%chunks*plan%groups*share%panel_slices*share%channel_slices
   end function share_outer

   !> Piece `number` of the work, from 0
   pure type(outer_item_type) function item_of(self, number)
      class(outer_share_type), intent(in) :: self
      !> Number of the piece, from 0
      integer, intent(in) :: number
      integer :: slices, slice
      slices = self%panel_slices*self%channel_slices
      slice = mod(number, slices)
      item_of%chunk = mod(number/slices, self%chunks) + 1
      item_of%group = number/(slices*self%chunks)
      item_of%first_panel = slice/self%channel_slices*self%panels/self%panel_slices
      item_of%last_panel = (slice/self%channel_slices + 1)*self%panels/self%panel_slices - 1
      slice = mod(slice, self%channel_slices)
      item_of%first = slice*self%channels/self%channel_slices
      item_of%last = (slice + 1)*self%channels/self%channel_slices
   end function item_of

end module cnn_cpu_plan_channel_lanes_share
