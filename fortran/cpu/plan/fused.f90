! SPDX-License-Identifier: MIT
!> Depth first through a fused sequence of convolutions: which rows of each are computed when.
!>
!> Layer after layer, every tensor of a large image goes to memory and comes back. Instead, a window of a few rows is
!> taken through all passes of a sequence, and then the next: what one pass makes is in the cache when the next needs
!> it, and lies already as that one reads it (a stream). Only what must be kept goes to memory.
!>
!> Chunks.  The rows of each image are cut into chunks that threads work on apart from each other. A pass reads rows of
!>          its source above and below its own; where these belong to another chunk, they are computed twice. Each row
!>          belongs to one chunk: that keeps it, and adds it to sums. Chunks do not depend on the number of threads.
!> Source.  Alwani, Chen, Ferdman and Milder, "Fused-layer CNN accelerators" (MICRO 2016).
module cnn_cpu_plan_fused
   use cnn_core_kinds, only : bytes_of, dp, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_cpu_plan_grid, only : grid_type, most_summed
   use cnn_cpu_plan_task, only : epilogue_type
   implicit none
   private

   public :: plan_sequence

   !> What a pass computes
   integer, parameter, public :: computes_output = 1, computes_data_gradient = 2, computes_filter_gradient = 3

   !> One convolution, forward or backward, or one filter gradient; strides and groups are 1
   type, public :: pass_type
      type(grid_type) :: grid
      !> Which of the three
      integer :: computes = computes_output
      !> Of a filter gradient: dy is its source, along the backward grid; else x is, along the forward grid
      logical :: shifts_dy = .false.
      !> The result of a convolution is kept in its tensor
      logical :: kept = .false.
      !> Of a filter gradient: `w` is the gradient, and `result` the tensor whose rows are not shifted
      type(tensor_type) :: source, w, result
      !> Of a convolution
      type(epilogue_type) :: epilogue
      !> The pass that makes the source, or that makes what is in the place of the `result`; 0: they are in memory
      integer :: source_from = 0, result_from = 0
      !> How many rows it is ahead of the last pass
      integer :: ahead = 0
   end type pass_type

   type, public :: sequence_type
      type(pass_type), allocatable :: passes(:)
      integer :: images = 0
      !> Chunks of an image, and rows of a window
      integer :: chunks = 0, window = 0
      !> Places that sums are kept in, each for several chunks one after the other
      integer :: slots = 0
   contains
      procedure :: chunk_rows
      procedure :: reader_of
   end type sequence_type

contains

   !> Set window and chunks for passes that have been entered; `fits`: a window of the widest tensors is in the cache
   pure subroutine plan_sequence(sequence, images, fits)
      !> Passes, already entered; windows, chunks and slots are set
      type(sequence_type), intent(inout) :: sequence
      !> Number of images of the batch
      integer, intent(in) :: images
      !> Whether the sequence can, and should, be computed depth first
      logical, intent(out) :: fits
      !> What a window of one tensor may take: several are in a second-level cache at a time
      real(dp), parameter :: window_bytes = 393216.0_dp
      integer, parameter :: least_window = 2, wanted_chunks = 16, least_rows = 16
      integer(i8) :: row_bytes
      integer :: i, height, width

      sequence%images = images
      row_bytes = 1_i8
      width = 1
      do i = 1, size(sequence%passes)
         width = max(width, sequence%passes(i)%result%extent(1))
         row_bytes = max(row_bytes, row_bytes_of(sequence%passes(i)%result), row_bytes_of(sequence%passes(i)%source))
      end do
      height = sequence%passes(size(sequence%passes))%result%extent(2)
      sequence%window = min(int(window_bytes/real(row_bytes, dp)), max(least_window, most_summed/width), height)
      fits = sequence%window >= min(least_window, height) .and. all_is_read(sequence)
      if (.not. fits) return
      sequence%chunks = max(1, min((wanted_chunks + images - 1)/images, height/least_rows))
      do i = 1, size(sequence%passes)
         sequence%passes(i)%grid%band = [sequence%passes(i)%grid%extent(1), sequence%window]
      end do
      fits = bands_fit(sequence)
      if (fits) call limit_overlap(sequence, fits)
      if (fits) call share_slots(sequence, wanted_chunks, fits)
      call look_ahead(sequence)
   end subroutine plan_sequence

   !> Fewer chunks, as long as there are some for several threads, when too many rows would be computed twice, as in
   !> deep sequences; `fits`: that helps
   pure subroutine limit_overlap(sequence, fits)
      !> Fused sequence whose `chunks` may become fewer
      type(sequence_type), intent(inout) :: sequence
      !> Whether few enough rows are computed twice then
      logical, intent(out) :: fits
      !> Rows that are computed for each that is needed; chunks of the whole batch
      real(dp), parameter :: most = 1.25_dp
      integer, parameter :: least_chunks = 4
      integer :: least
      least = min(sequence%chunks, (least_chunks + sequence%images - 1)/sequence%images)
      do while (sequence%chunks > least .and. overlap(sequence) > most)
         sequence%chunks = sequence%chunks - 1
      end do
      fits = overlap(sequence) <= most
   end subroutine limit_overlap

   !> Rows of all passes that are computed, for each that is needed
   pure real(dp) function overlap(sequence)
      !> Fused sequence with its chunks
      type(sequence_type), intent(in) :: sequence
      integer :: own(2, size(sequence%passes)), rows(2, size(sequence%passes)), chunk
      integer(i8) :: computed, needed
      computed = 0_i8
      needed = 0_i8
      do chunk = 1, sequence%chunks
         call sequence%chunk_rows(chunk, own, rows)
         computed = computed + sum(int(rows(2, :) - rows(1, :), i8))
         needed = needed + sum(int(own(2, :) - own(1, :), i8))
      end do
      overlap = real(computed, dp)/real(needed, dp)
   end function overlap

   pure integer(i8) function row_bytes_of(tensor)
      !> Tensor of which only extents and element type matter
      type(tensor_type), intent(in) :: tensor
      row_bytes_of = int(tensor%extent(1), i8)*tensor%extent(3)*bytes_of(tensor%dtype)
   end function row_bytes_of

   !> Whether padding and halos, which `row_bytes` leaves out, keep bands within what 32 bits count by far
   pure logical function bands_fit(sequence)
      !> Passes of the fused sequence, its windows and chunks
      type(sequence_type), intent(in) :: sequence
      integer(i8), parameter :: most_elements = 16777216_i8
      integer :: i
      bands_fit = .true.
      do i = 1, size(sequence%passes)
         associate (pass => sequence%passes(i))
            bands_fit = bands_fit .and. pass%grid%plane_elements(16)*pass%source%extent(3) < most_elements
         end associate
      end do
   end function bands_fit

   !> Set `slots`: filter gradients in float64 are as large as the filters, and one for each chunk of a large batch
   !> would be more than all tensors. `fits`: there is room for enough of them to share the work
   pure subroutine share_slots(sequence, least, fits)
      !> Fused sequence whose `slots` are set
      type(sequence_type), intent(inout) :: sequence
      !> Slots that are wanted, unless there are fewer chunks
      integer, intent(in) :: least
      !> Whether there is memory for so many
      logical, intent(out) :: fits
      integer(i8), parameter :: most_elements = 8388608_i8
      integer(i8) :: elements
      integer :: i
      elements = 1_i8
      do i = 1, size(sequence%passes)
         if (sequence%passes(i)%computes == computes_filter_gradient) then
            elements = elements + product(int(sequence%passes(i)%w%extent, i8))
         end if
      end do
      sequence%slots = int(min(int(sequence%images, i8)*sequence%chunks, most_elements/elements))
      fits = sequence%slots >= min(least, sequence%images*sequence%chunks)
   end subroutine share_slots

   !> Whether passes read all pixels of what others make, and no padding is larger than the filter: a stream has no room
   !> for others
   pure logical function all_is_read(sequence)
      !> Passes of the fused sequence, its windows and chunks
      type(sequence_type), intent(in) :: sequence
      integer :: i
      all_is_read = .true.
      do i = 1, size(sequence%passes)
         associate (pass => sequence%passes(i))
            if (pass%source_from > 0) all_is_read = all_is_read .and. all(pass%grid%origin(:, 1) <= 0)
         end associate
      end do
   end function all_is_read

   !> Set `ahead`: each pass is so far ahead that those after it find what they read, and all that read the same stream
   !> are at the same row
   pure subroutine look_ahead(sequence)
      !> Fused sequence, the `ahead` of whose passes is set
      type(sequence_type), intent(inout) :: sequence
      integer :: i
      do i = size(sequence%passes), 1, -1
         associate (pass => sequence%passes(i))
            if (i < size(sequence%passes)) then
               if (sequence%passes(i + 1)%source_from == pass%source_from) pass%ahead = sequence%passes(i + 1)%ahead
            end if
            if (pass%result_from > 0) sequence%passes(pass%result_from)%ahead = pass%ahead
            if (pass%source_from > 0) sequence%passes(pass%source_from)%ahead = &
               & pass%ahead + pass%grid%origin(2, 1) + pass%grid%halo(2)
         end associate
      end do
   end subroutine look_ahead

   !> The first pass that reads what pass i makes; 0 when none does
   pure integer function reader_of(self, i)
      class(sequence_type), intent(in) :: self
      !> Number of the pass that makes the rows
      integer, intent(in) :: i
      do reader_of = i + 1, size(self%passes)
         if (self%passes(reader_of)%source_from == i .or. self%passes(reader_of)%result_from == i) return
      end do
      reader_of = 0
   end function reader_of

   !> Rows first .. end-1 (from 0) of the result of each pass: its own in a chunk (from 1), and all that it must make
   pure subroutine chunk_rows(self, chunk, own, rows)
      class(sequence_type), intent(in) :: self
      !> Number of the chunk of an image, from 1
      integer, intent(in) :: chunk
      !> (2, passes): first row that belongs to the chunk, from 0, and the one behind its last
      integer, intent(out) :: own(:, :)
      !> (2, passes): the same for all rows that the chunk must compute
      integer, intent(out) :: rows(:, :)
      integer :: i, height
      do i = 1, size(self%passes)
         height = self%passes(i)%result%extent(2)
         own(:, i) = int(int([chunk - 1, chunk], i8)*height/self%chunks)
      end do
      rows = own
      do i = size(self%passes), 1, -1
         associate (pass => self%passes(i))
            if (pass%result_from > 0) call include_rows(rows(:, i), rows(:, pass%result_from))
            if (pass%source_from == 0) cycle
            ! Row r reads rows r + origin .. r + origin + halo of its source, which has zeros above and below
            call include_rows(max(0, min(pass%source%extent(2), &
               & rows(:, i) + pass%grid%origin(2, 1) + [0, pass%grid%halo(2)])), rows(:, pass%source_from))
         end associate
      end do
   end subroutine chunk_rows

   pure subroutine include_rows(needed, rows)
      !> First row that is read, from 0, and the one behind the last
      integer, intent(in) :: needed(2)
      !> First row, and the one behind the last, extended to these
      integer, intent(inout) :: rows(2)
      rows = [min(rows(1), needed(1)), max(rows(2), needed(2))]
   end subroutine include_rows

end module cnn_cpu_plan_fused
