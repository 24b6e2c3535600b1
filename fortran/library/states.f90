! SPDX-License-Identifier: MIT
!> What networks are, apart from the variables that hold them.
!>
!> Copies.   Compilers copy variables bit by bit: for a function's result, an element of an array, a component of a
!>           type, `allocate` with a source. A variable therefore has no more than a number and its own address. One
!>           that finds another address than its own is such a copy: at its first call it becomes a copy of what it was
!>           taken from, if that is there and as it was. Where it is not, the call says so.
!> Memory.   Compilers also forget to finalize: a function's result, a variable that is overwritten bit by bit. What is
!>           made for a variable therefore takes the place of what an earlier one at the same address has left.
!> Threads.  One call at a time is at work on a network; another one is refused. Only calls that leave the network as it
!>           is may be many: the first works on it, each other one on a replica.
module cnn_library_states
   use, intrinsic :: iso_c_binding, only : c_int, c_intptr_t, c_loc, c_null_ptr
   use cnn_core_error, only : error_type, fail
   use cnn_core_float_traps, only : float_traps_type
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : for_files, for_fortran, reader
   use cnn_library_copies, only : copy_network
   use cnn_library_random, only : generator_type
   use cnn_model_description, only : description_type
   use cnn_model_network, only : layer_view_type, network_type
   implicit none
   private

   public :: free_model, take_model

   character(len=*), parameter :: not_built = "network: it is not built, expected build or load first"
   character(len=*), parameter :: busy = "network: another call is at work on it, expected one thread at a time, "// &
      & "or a copy for each"
   character(len=*), parameter :: copied = "network: a copy that the compiler has made on its own, and what it is of "
   character(len=*), parameter :: assigned = ", expected an assignment of the network itself (a%net = b%net)"

   !> What a call does: it leaves the network as it is, or not; or it leaves it so where no layer keeps or draws one
   integer, parameter, public :: call_reads = 1, call_changes = 2, call_computes = 3

   type :: pointer_type
      type(state_type), pointer :: state => null()
   end type pointer_type

   type, public :: state_type
      !> Not allocated before it is built
      class(network_type), allocatable :: model
      type(description_type) :: description
      !> What was wrong with a layer, or with a copy
      type(error_type), allocatable :: failure
      !> Name of the device, with its options
      character(len=:), allocatable :: device
      !> Of the masks of steps, which follow from it and the number of the step, so that a training that goes on from a
      !> file has the same; and what draws those of other calls
      integer(i8) :: seed = 0_i8
      type(generator_type) :: generator
      logical :: is_training = .true.
      !> Whether a layer keeps numbers of what it has seen, or draws some
      logical, private :: has_memory = .false.
      !> On another device than the caller's arrays: copies of these
      type(tensor_type) :: staged(2)
      !> Whether several threads have computed at once, so that nobody knows whose the outputs are
      logical :: is_mixed = .false.
      !> Its number, which no other has or will have
      integer(i8), private :: id = 0_i8
      !> Address of the variable that gives it back
      integer(c_intptr_t), private :: owner = 0_c_intptr_t
      !> Goes up with each call that changes it
      integer(i8), private :: version = 0_i8
      !> Calls that are at work, whether one of them is alone, and whether one works here, not on a replica
      integer, private :: calls = 0
      logical, private :: is_alone = .false., is_taken = .false.
      !> For calls at the same time
      type(pointer_type), allocatable, private :: replicas(:)
      !> What was at the address before, of which there may be copies of bits; and whether the next call gives it back
      type(pointer_type), private :: previous
      logical, private :: drops_previous = .false.
   end type state_type

   !> What a variable has
   type, public :: place_type
      private
      !> In the table, and to whom it belongs there
      integer :: slot = 0
      integer(i8) :: id = 0_i8
      !> As it was when the variable was last used
      integer(i8) :: version = 0_i8
      !> Its own address, if no compiler has copied it
      integer(c_intptr_t) :: owner = 0_c_intptr_t
      !> Has that address
      integer(c_int) :: mark = 0_c_int
   contains
      procedure :: peek
      procedure :: renew
      procedure :: copy_from
      procedure :: release
      procedure, private :: address, settle
   end type place_type

   !> A call that is at work; it ends when its variable goes out of scope
   type, public :: call_type
      !> On which it works
      type(state_type), pointer :: state => null()
      !> Whose version goes up, and that it works for
      type(state_type), pointer, private :: main => null()
      type(float_traps_type), private :: traps
      logical, private :: is_held = .false.
      !> Of messages before it
      integer, private :: reader = for_files
   contains
      procedure :: begin
      procedure, private :: join
      final :: finish
   end type call_type

   !> By slot; a slot is used again
   type(pointer_type), allocatable :: table(:)
   !> How many there have been
   integer(i8) :: count = 0_i8

contains

   !> Where the variable is
   integer(c_intptr_t) function address(self)
      !> Of the variable
      class(place_type), target, intent(in) :: self
      address = transfer(c_loc(self%mark), address)
   end function address

   !> What a variable holds, of which nothing is changed; null where there is nothing
   subroutine peek(self, state, error)
      !> Of the variable
      class(place_type), intent(in) :: self
      !> Found
      type(state_type), pointer, intent(out) :: state
      !> It is not built, or what made it so
      type(error_type), allocatable, intent(out), optional :: error
      !$omp critical (cnn_networks)
      state => in_table(self)
      if (associated(state)) then
         if (state%version /= self%version) nullify (state)
      end if
      !$omp end critical (cnn_networks)
      if (present(error)) call check_built(state, error)
   end subroutine peek

   subroutine check_built(state, error)
      !> Of a variable, or null
      type(state_type), pointer, intent(in) :: state
      !> It is not built, or what made it so
      type(error_type), allocatable, intent(out) :: error
      if (.not. associated(state)) then
         call fail(error, not_built)
      else if (allocated(state%failure)) then
         error = state%failure
      else if (.not. allocated(state%model)) then
         call fail(error, not_built)
      end if
   end subroutine check_built

   !> The same, inside of the critical section
   function in_table(place) result(state)
      !> Of a variable
      class(place_type), intent(in) :: place
      type(state_type), pointer :: state
      nullify (state)
      if (place%slot == 0) return
      state => table(place%slot)%state
      if (.not. associated(state)) return
      ! The slot is another's by now
      if (state%id /= place%id) nullify (state)
   end function in_table

   !> Something new for a variable, which is in nobody's hands yet
   subroutine renew(self, state, drops)
      !> Of the variable, which has it from now on
      class(place_type), intent(inout) :: self
      !> With a description alone, or a model
      type(state_type), pointer, intent(in) :: state
      !> Whether what was there before is given back at the next call; else when there is something new again
      logical, intent(in) :: drops
      type(state_type), pointer :: left, older
      type(pointer_type), allocatable :: larger(:)
      integer(c_intptr_t) :: here
      integer :: i, slot
      here = self%address()
      nullify (left, older)
      !$omp critical (cnn_networks)
      if (.not. allocated(table)) allocate (table(8))
      slot = 0
      do i = size(table), 1, -1
         if (.not. associated(table(i)%state)) then
            slot = i
         else if (table(i)%state%owner == here) then
            left => table(i)%state
         end if
      end do
      if (slot == 0) then
         slot = size(table) + 1
         allocate (larger(2*size(table)))
         larger(:size(table)) = table
         call move_alloc(larger, table)
      end if
      if (associated(left)) then
         left%owner = 0_c_intptr_t
         older => left%previous%state
         nullify (left%previous%state)
         call forget(older)
      end if
      count = count + 1_i8
      state%id = count
      state%owner = here
      state%version = 0_i8
      state%previous%state => left
      state%drops_previous = drops
      table(slot)%state => state
      !$omp end critical (cnn_networks)
      self%slot = slot
      self%id = state%id
      self%version = 0_i8
      self%owner = here
      call free(older)
   end subroutine renew

   !> What a variable holds is given back; it is empty afterwards
   subroutine release(self)
      !> Of the variable
      class(place_type), intent(inout) :: self
      type(state_type), pointer :: state, older
      nullify (older)
      !$omp critical (cnn_networks)
      state => in_table(self)
      if (associated(state)) then
         ! Another's
         if (state%owner /= self%address()) nullify (state)
      end if
      if (associated(state)) older => state%previous%state
      call forget(state)
      call forget(older)
      !$omp end critical (cnn_networks)
      self%slot = 0
      self%id = 0_i8
      call free(state)
      call free(older)
   end subroutine release

   !> Out of the table, inside of the critical section
   subroutine forget(state)
      !> In it, or null
      type(state_type), pointer, intent(in) :: state
      integer :: i
      if (.not. associated(state)) return
      do i = 1, size(table)
         if (associated(table(i)%state, state)) nullify (table(i)%state)
      end do
   end subroutine forget

   !> Give its memory back
   recursive subroutine free(state)
      !> That is not in the table, or null
      type(state_type), pointer, intent(inout) :: state
      if (.not. associated(state)) return
      ! A thread is still at work on it, which is wrong: its memory is lost then, and not taken away under its hands
      if (state%calls > 0) return
      call free_replicas(state)
      call free_model(state)
      deallocate (state)
   end subroutine free

   subroutine free_model(state)
      !> Is not built afterwards
      type(state_type), intent(inout) :: state
      integer :: i
      if (.not. allocated(state%model)) return
      do i = 1, size(state%staged)
         call state%model%backend%release(state%staged(i))
      end do
      state%staged = tensor_type()
      ! By itself, so that it is finalized
      deallocate (state%model)
   end subroutine free_model

   recursive subroutine free_replicas(state)
      !> On which nobody works
      type(state_type), intent(inout) :: state
      integer :: i
      if (.not. allocated(state%replicas)) return
      do i = 1, size(state%replicas)
         call free(state%replicas(i)%state)
      end do
      deallocate (state%replicas)
   end subroutine free_replicas

   !> What was made for a network.
   !> On a device it works on the default stream, in the order of what the caller queues there: CUDA Fortran's and
   !> OpenACC's kernels and copies
   subroutine take_model(state, model, error)
      !> Has none
      type(state_type), intent(inout) :: state
      !> Is its from now on, but after an error
      class(network_type), allocatable, intent(inout) :: model
      !> Of the device
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      integer :: i
      call model%backend%use_stream(c_null_ptr, .false., error)
      if (allocated(error)) return
      call move_alloc(model, state%model)
      state%has_memory = .false.
      do i = 1, state%model%layer_count()
         call state%model%view(i, layer)
         state%has_memory = state%has_memory .or. layer%has_mask .or. size(layer%state) > 0
      end do
   end subroutine take_model

   !> All that a training goes on from
   subroutine copy_state(from, to)
      !> That nobody changes meanwhile
      type(state_type), intent(in) :: from
      !> New. Where there is no memory for it, its calls say so
      type(state_type), intent(inout) :: to
      class(network_type), allocatable :: model
      type(error_type), allocatable :: error
      to%description = from%description
      to%seed = from%seed
      to%generator = from%generator
      to%is_training = from%is_training
      if (allocated(from%failure)) allocate (to%failure, source=from%failure)
      if (.not. allocated(from%model)) return
      to%device = from%device
      call copy_network(from%model, from%description, from%device, model, error)
      if (.not. allocated(error)) call take_model(to, model, error)
      if (allocated(error)) then
         call move_alloc(error, to%failure)
      else
         call to%model%set_training(to%is_training)
      end if
   end subroutine copy_state

   !> The variable becomes a copy that learns by itself; what it was before is gone
   subroutine copy_from(self, other)
      !> Of the variable
      class(place_type), intent(inout) :: self
      !> Of the other
      class(place_type), intent(in) :: other
      type(state_type), pointer :: from, made
      type(error_type), allocatable :: error
      type(float_traps_type) :: traps
      if (other%id /= 0_i8 .and. other%id == self%id) return
      call traps%hold()
      allocate (made)
      if (other%id /= 0_i8) then
         call hold_original(other, from, error)
         if (allocated(error)) then
            call move_alloc(error, made%failure)
         else
            call copy_state(from, made)
            call let_go(from)
         end if
      end if
      ! Elements of an array that are assigned to each other are still copied from
      call self%renew(made, drops=.true.)
      call traps%restore()
   end subroutine copy_from

   !> What a copy is made of, which nobody changes until `let_go`
   subroutine hold_original(place, state, error)
      !> Of a variable, or of a copy of its bits
      class(place_type), intent(in) :: place
      !> Found; null after an error
      type(state_type), pointer, intent(out) :: state
      !> It is no more, or not as it was, or being changed
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: message
      message = ""
      !$omp critical (cnn_networks)
      state => in_table(place)
      if (.not. associated(state)) then
         message = copied//"is no more"//assigned
      else if (state%is_alone) then
         message = busy
      else if (state%version /= place%version) then
         message = copied//"has changed since"//assigned
      else
         state%calls = state%calls + 1
      end if
      !$omp end critical (cnn_networks)
      if (len(message) == 0) return
      nullify (state)
      call fail(error, message)
   end subroutine hold_original

   subroutine let_go(state)
      !> That was held
      type(state_type), intent(inout) :: state
      !$omp critical (cnn_networks)
      state%calls = state%calls - 1
      !$omp end critical (cnn_networks)
   end subroutine let_go

   !> What a variable holds; a copy of its bits becomes a copy
   subroutine settle(self, state, error)
      !> Of the variable
      class(place_type), intent(inout) :: self
      !> Is its alone; null where there is nothing
      type(state_type), pointer, intent(out) :: state
      !> A copy that cannot be made
      type(error_type), allocatable, intent(out) :: error
      type(state_type), pointer :: original, older
      nullify (state, older)
      if (self%id == 0_i8) return
      if (self%owner == self%address()) then
         !$omp critical (cnn_networks)
         state => in_table(self)
         if (associated(state)) then
            if (state%drops_previous) then
               older => state%previous%state
               nullify (state%previous%state)
               call forget(older)
            end if
         end if
         !$omp end critical (cnn_networks)
         call free(older)
         return
      end if
      call hold_original(self, original, error)
      if (allocated(error)) return
      allocate (state)
      call copy_state(original, state)
      call let_go(original)
      call self%renew(state, drops=.false.)
   end subroutine settle

   !> A call begins; after an error there is nothing to work on
   subroutine begin(self, place, does, error, is_draft)
      !> Ends when it goes out of scope
      class(call_type), intent(inout) :: self
      !> Of the network's variable
      class(place_type), intent(inout) :: place
      !> `call_reads`, `call_changes` or `call_computes`
      integer, intent(in) :: does
      !> It is not built, or what made it so; or another call is at work
      type(error_type), allocatable, intent(out) :: error
      !> Whether it need not be built, and may have failed; no where it is not given
      logical, intent(in), optional :: is_draft
      type(state_type), pointer :: state
      logical :: drafts
      drafts = .false.
      if (present(is_draft)) drafts = is_draft
      call self%traps%hold()
      self%is_held = .true.
      self%reader = reader
      if (reader == for_files) reader = for_fortran
      call place%settle(state, error)
      if (allocated(error)) return
      if (drafts) then
         if (.not. associated(state)) then
            allocate (state)
            call place%renew(state, drops=.false.)
         end if
      else
         call check_built(state, error)
      end if
      if (.not. allocated(error)) call self%join(place, state, does, error)
   end subroutine begin

   subroutine join(self, place, state, does, error)
      !> The call
      class(call_type), intent(inout) :: self
      !> Of the network's variable
      class(place_type), intent(inout) :: place
      !> What it holds
      type(state_type), pointer, intent(in) :: state
      !> As of `begin`
      integer, intent(in) :: does
      !> Another call is at work, or no memory for a replica
      type(error_type), allocatable, intent(out) :: error
      type(state_type), pointer :: replica
      logical :: alone, refused
      integer :: i
      nullify (replica)
      alone = .not. (does == call_computes .and. allocated(state%model) .and. .not. (state%is_training .and. &
         & state%has_memory))
      !$omp critical (cnn_networks)
      refused = state%is_alone .or. (alone .and. state%calls > 0)
      if (.not. refused) then
         state%calls = state%calls + 1
         state%is_alone = alone
         self%main => state
         if (alone .or. .not. state%is_taken) then
            if (does /= call_reads .and. state%calls == 1) state%is_mixed = .false.
            state%is_taken = .true.
            self%state => state
         else
            state%is_mixed = .true.
            if (allocated(state%replicas)) then
               do i = 1, size(state%replicas)
                  if (state%replicas(i)%state%calls == 0) replica => state%replicas(i)%state
               end do
            end if
            if (associated(replica)) replica%calls = 1
            self%state => replica
         end if
      end if
      !$omp end critical (cnn_networks)
      if (refused) then
         call fail(error, busy)
      else if (.not. associated(self%state)) then
         call add_replica(state, self%state, error)
      else if (alone .and. does /= call_reads) then
         state%version = state%version + 1_i8
         place%version = state%version
         call free_replicas(state)
      end if
   end subroutine join

   !> One more, for one more thread
   subroutine add_replica(state, replica, error)
      !> On which calls are at work that leave it as it is
      type(state_type), intent(inout) :: state
      !> Is taken; null after an error
      type(state_type), pointer, intent(out) :: replica
      !> No memory
      type(error_type), allocatable, intent(out) :: error
      allocate (replica)
      call copy_state(state, replica)
      if (allocated(replica%failure)) then
         call move_alloc(replica%failure, error)
         call free(replica)
         nullify (replica)
         return
      end if
      replica%calls = 1
      !$omp critical (cnn_networks)
      if (.not. allocated(state%replicas)) allocate (state%replicas(0))
      state%replicas = [state%replicas, pointer_type(replica)]
      !$omp end critical (cnn_networks)
   end subroutine add_replica

   !> The next one may come
   impure elemental subroutine finish(self)
      !> The call
      type(call_type), intent(inout) :: self
      if (associated(self%main)) then
         !$omp critical (cnn_networks)
         self%main%calls = self%main%calls - 1
         self%main%is_alone = .false.
         if (associated(self%state, self%main)) then
            self%main%is_taken = .false.
         else if (associated(self%state)) then
            self%state%calls = 0
         end if
         !$omp end critical (cnn_networks)
      end if
      nullify (self%main, self%state)
      if (self%is_held) then
         reader = self%reader
         call self%traps%restore()
      end if
      self%is_held = .false.
   end subroutine finish

end module cnn_library_states
