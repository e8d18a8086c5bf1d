//! Mistakes that others made before: what can be asked for and will not be found.
//!
//! All of them are in the proposal's own example. They are notes: the document means what it says.

use super::kernel_configuration::{Asked, Expected};
use crate::json::Member;
use crate::value::At;

/// `enable_gvt` is a parameter of i915, though kvmgt is the module that needs it.
pub(super) fn parameter(module: &str, field: &Member, at: &mut At<'_>) {
    if module == "kvmgt" && field.key == "enable_gvt" {
        let message = "enable_gvt is a parameter of i915, not of kvmgt; no host has it there";
        at.hazard(field.place, message, Some("i915"));
    }
}

/// Options that are booleans, or that later kernels no longer have.
pub(super) fn option(name: &str, asked: &Asked, member: &Member, at: &mut At<'_>) {
    let modular = matches!(asked, Asked::OneOf(any)
        if any.iter().all(|one| matches!(one, Expected::Module | Expected::ModuleOnly)));
    match name {
        "DRM_I915_GVT" if modular => {
            let message = "CONFIG_DRM_I915_GVT is y or not set, and never m";
            at.hazard(member.place, message, Some("\"y\""));
        }
        "VFIO_MDEV_DEVICE" => {
            let message = "CONFIG_VFIO_MDEV_DEVICE became part of CONFIG_VFIO_MDEV; later kernels do not know it";
            at.hazard(member.place, message, None);
        }
        _ => {}
    }
}

/// The IOMMU may be on without being asked for.
pub(super) fn boot_parameter(member: &Member, at: &mut At<'_>) {
    if member.key.replace('-', "_") == "intel_iommu" {
        let message = "a kernel with CONFIG_INTEL_IOMMU_DEFAULT_ON needs no intel_iommu=on";
        at.hazard(member.place, message, None);
    }
}

/// NVIDIA's graphics cards are 0300 or 0302.
pub(super) fn pci(class: &str, vendor: &str, place: crate::json::Place, at: &mut At<'_>) {
    if class == "0380" && vendor == "10de" {
        let message = "graphics cards of NVIDIA are of class 0300 or 0302, not 0380";
        at.hazard(place, message, Some("03:10de"));
    }
}
