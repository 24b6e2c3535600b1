# SPDX-License-Identifier: MIT
"""spack's recipe: the Fortran library, its module and the programs.

It goes into packages/fortran_torch_bridge of a spack repository; `spack dev-build` takes the sources of a checkout.
"""

from spack.package import depends_on, license, variant, version
from spack_repo.builtin.build_systems.meson import MesonPackage


class FortranTorchBridge(MesonPackage):
    """Convolutional networks in Fortran, beside PyTorch, and a validator that says whether they are right."""

    license("MIT")

    version("0.6.0")

    depends_on("c", type="build")
    depends_on("fortran", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hdf5@1.10:")

    variant("native", default=False, description="Compile for this machine only")

    def meson_args(self):
        """The library alone; pip installs the Python packages."""
        return ["-Dpython=false", f"-Dnative={'true' if self.spec.satisfies('+native') else 'false'}"]
