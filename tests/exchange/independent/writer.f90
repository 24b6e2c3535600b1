! A program that knows HDF5, and nothing of ours: one layer by plain loops, arrays indexed as on paper,
! the filter gradient as a true convolution keeps it. It says so in `layout` and `flip`.
program stranger
   use hdf5
   use h5lt
   implicit none
   integer(hid_t) :: fixture, result, group
   integer :: n, k, c, y, x, r, s, i, j, status
   real, allocatable :: a(:, :, :, :), dz(:, :, :, :), w(:, :, :, :), z(:, :, :, :), dw(:, :, :, :), b(:)
   call h5open_f(status)
   call h5fopen_f("fixture.h5", H5F_ACC_RDONLY_F, fixture, status)
   a = tensor("/steps/0/forward/relu1")                 ! a(x, y, c, n)
   dz = tensor("/steps/0/grads/conv2/output")           ! dz(x, y, k, n)
   w = tensor("/steps/0/weights/conv2/weight")          ! w(s, r, c, k)
   allocate (b(size(w, 4)), z(size(a, 2), size(a, 1), size(w, 4), size(a, 4)), dw(size(w, 4), size(w, 3), 3, 3))
   call h5ltread_dataset_float_f(fixture, "/steps/0/weights/conv2/bias", b, shape(b, hsize_t), status)
   dw = 0
   do n = 1, size(a, 4); do k = 1, size(b); do y = 1, size(z, 1); do x = 1, size(z, 2)
      z(y, x, k, n) = b(k)
      do c = 1, size(w, 3); do r = 1, 3; do s = 1, 3
         i = y + r - 2
         j = x + s - 2
         if (min(i, j) < 1 .or. i > size(a, 2) .or. j > size(a, 1)) cycle
         z(y, x, k, n) = z(y, x, k, n) + w(s, r, c, k)*a(j, i, c, n)
         dw(k, c, 4 - r, 4 - s) = dw(k, c, 4 - r, 4 - s) + dz(x, y, k, n)*a(j, i, c, n)
      end do; end do; end do
   end do; end do; end do; end do
   call h5fcreate_f("result.h5", H5F_ACC_TRUNC_F, result, status)
   call h5ltset_attribute_string_f(result, "/", "format", "cnn-exchange", status)
   call h5ltset_attribute_string_f(result, "/", "role", "candidate", status)
   call h5ltset_attribute_int_f(result, "/", "format_version", [1], 1_size_t, status)
   call h5gcreate_f(result, "/steps", group, status)
   call h5gcreate_f(result, "/steps/0", group, status)
   call h5gcreate_f(result, "/steps/0/forward", group, status)
   call h5gcreate_f(result, "/steps/0/grads", group, status)
   call h5gcreate_f(result, "/steps/0/grads/conv2", group, status)
   call put("/steps/0/forward/conv2", z, "NCWH")        ! z(y, x, k, n): HDF5 names the axes from the last
   call put("/steps/0/grads/conv2/weight", dw, "SRCK")
   call h5ltset_attribute_string_f(result, "/steps/0/grads/conv2/weight", "flip", "rs", status)
   call h5fclose_f(result, status)

contains

   function tensor(name) result(values)
      character(len=*), intent(in) :: name
      real, allocatable :: values(:, :, :, :)
      integer(hsize_t) :: dims(4)
      integer(size_t) :: bytes
      integer :: kind
      call h5ltget_dataset_info_f(fixture, name, dims, kind, bytes, status)
      allocate (values(dims(1), dims(2), dims(3), dims(4)))
      call h5ltread_dataset_float_f(fixture, name, values, dims, status)
   end function tensor

   subroutine put(name, values, layout)
      character(len=*), intent(in) :: name, layout
      real, intent(in) :: values(:, :, :, :)
      call h5ltmake_dataset_float_f(result, name, 4, shape(values, hsize_t), values, status)
      call h5ltset_attribute_string_f(result, name, "layout", layout, status)
   end subroutine put

end program stranger
