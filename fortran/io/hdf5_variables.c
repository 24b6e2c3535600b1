/* SPDX-License-Identifier: MIT
 * Numbers that HDF5 keeps in variables and fills in when it is opened: of types, and of kinds of lists of properties.
 *
 * Not bind(C) variables of a Fortran module: gfortran defines these where C declares them, and the library's own would
 * be others. Source: H5Tpublic.h, H5Ppublic.h, where macros hide these names. */

#include <stdint.h>

typedef int64_t hid_t;

extern hid_t H5T_NATIVE_INT_g, H5T_NATIVE_FLOAT_g, H5T_NATIVE_DOUBLE_g, H5T_C_S1_g, H5P_CLS_LINK_CREATE_ID_g;

hid_t cnn_hdf5_native_int(void) { return H5T_NATIVE_INT_g; }
hid_t cnn_hdf5_native_float(void) { return H5T_NATIVE_FLOAT_g; }
hid_t cnn_hdf5_native_double(void) { return H5T_NATIVE_DOUBLE_g; }
hid_t cnn_hdf5_c_string(void) { return H5T_C_S1_g; }
hid_t cnn_hdf5_link_create(void) { return H5P_CLS_LINK_CREATE_ID_g; }
