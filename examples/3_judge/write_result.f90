program write_result
   use hdf5
   use h5lt
   implicit none
   integer(hid_t) :: fixture, result, group
   integer(hsize_t) :: dims(4)
   integer :: status, kind
   integer(size_t) :: bytes
   real, allocatable :: z(:, :, :, :)                            ! z(w, h, c, n) is torch's (n, c, h, w)
   call h5open_f(status)
   call h5fopen_f("fixture.h5", H5F_ACC_RDONLY_F, fixture, status)
   call h5ltget_dataset_info_f(fixture, "/steps/0/forward/conv1", dims, kind, bytes, status)
   allocate (z(dims(1), dims(2), dims(3), dims(4)))
   call h5ltread_dataset_float_f(fixture, "/steps/0/forward/conv1", z, dims, status)
   call h5fcreate_f("result.h5", H5F_ACC_TRUNC_F, result, status)
   call h5ltset_attribute_string_f(result, "/", "format", "cnn-exchange", status)
   call h5ltset_attribute_int_f(result, "/", "format_version", [2], 1_size_t, status)
   call h5gcreate_f(result, "/steps", group, status)
   call h5gcreate_f(result, "/steps/0", group, status)
   call h5gcreate_f(result, "/steps/0/forward", group, status)
   call h5ltmake_dataset_float_f(result, "/steps/0/forward/relu1", 4, dims, max(z, 0.0), status)  ! your kernel
   call h5fclose_f(result, status)
end program write_result
