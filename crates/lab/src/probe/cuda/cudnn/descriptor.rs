//! Descriptors of cuDNN's backend: made, filled, finished, destroyed.

use std::ffi::{CStr, c_void};

use cudarc::cudnn::sys;

use crate::probe::ProbeError;
use sys::cudnnBackendAttributeName_t as Name;
use sys::cudnnBackendAttributeType_t as Type;

/// A type that an attribute can have; its values lie in memory as the library's do.
pub trait Value: Copy {
    /// The library's name of it.
    const TYPE: Type;
}

/// Another descriptor.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Raw(sys::cudnnBackendDescriptor_t);

/// An address: of the device's memory, or of a number on the host.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Address(pub *mut c_void);

/// A handle of the library.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Handle(pub sys::cudnnHandle_t);

macro_rules! values {
    ($($rust:ty => $of:ident),*) => { $(impl Value for $rust { const TYPE: Type = Type::$of; })* };
}
values!(
    i64 => CUDNN_TYPE_INT64,
    bool => CUDNN_TYPE_BOOLEAN,
    u8 => CUDNN_TYPE_CHAR,
    Raw => CUDNN_TYPE_BACKEND_DESCRIPTOR,
    Address => CUDNN_TYPE_VOID_PTR,
    Handle => CUDNN_TYPE_HANDLE,
    sys::cudnnDataType_t => CUDNN_TYPE_DATA_TYPE,
    sys::cudnnPointwiseMode_t => CUDNN_TYPE_POINTWISE_MODE,
    sys::cudnnReduceTensorOp_t => CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
    sys::cudnnBackendHeurMode_t => CUDNN_TYPE_HEUR_MODE
);

/// What the library says of a call, with its own reason.
pub fn done(call: &str, status: sys::cudnnStatus_t) -> Result<(), ProbeError> {
    if status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut text = [0_u8; 512];
    // SAFETY: the library writes at most so many bytes, the last of them zero.
    unsafe { sys::cudnnGetLastErrorString(text.as_mut_ptr().cast(), text.len()) };
    let reason = CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy().trim().to_owned());
    let reason =
        reason.ok().filter(|reason| !reason.is_empty()).map_or_else(String::new, |reason| format!(": {reason}"));
    Err(ProbeError::Failed { call: call.to_owned(), why: format!("{status:?}{reason}") })
}

/// One descriptor.
pub struct Descriptor(sys::cudnnBackendDescriptor_t);

impl Descriptor {
    /// An empty one.
    pub fn new(kind: sys::cudnnBackendDescriptorType_t) -> Result<Self, ProbeError> {
        let mut made = std::ptr::null_mut();
        // SAFETY: the library writes one pointer.
        let status = unsafe { sys::cudnnBackendCreateDescriptor(kind, &raw mut made) };
        done(&format!("cudnnBackendCreateDescriptor {kind:?}"), status)?;
        Ok(Self(made))
    }

    /// With an attribute.
    pub fn with<T: Value>(self, name: Name, values: &[T]) -> Result<Self, ProbeError> {
        let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
        // SAFETY: the descriptor lives, and so many values of this type lie there; the library copies them.
        let status = unsafe { sys::cudnnBackendSetAttribute(self.0, name, T::TYPE, count, values.as_ptr().cast()) };
        done(&format!("cudnnBackendSetAttribute {name:?}"), status)?;
        Ok(self)
    }

    /// Finished: the library has checked it.
    pub fn finished(self, what: &str) -> Result<Self, ProbeError> {
        // SAFETY: the descriptor lives.
        done(&format!("cudnnBackendFinalize of {what}"), unsafe { sys::cudnnBackendFinalize(self.0) })?;
        Ok(self)
    }

    /// As an attribute of another, which this one must outlive.
    pub const fn raw(&self) -> Raw {
        Raw(self.0)
    }

    /// As a call takes it.
    pub const fn pointer(&self) -> sys::cudnnBackendDescriptor_t {
        self.0
    }

    /// Reads values of an attribute, and says how many there are.
    pub fn read<T: Value>(&self, name: Name, values: &mut [T]) -> Result<usize, ProbeError> {
        let (room, mut count) = (i64::try_from(values.len()).unwrap_or(i64::MAX), 0);
        let to = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast() };
        // SAFETY: the descriptor lives, and there is room for as many values of this type as are asked for.
        let status = unsafe { sys::cudnnBackendGetAttribute(self.0, name, T::TYPE, room, &raw mut count, to) };
        done(&format!("cudnnBackendGetAttribute {name:?}"), status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// An attribute that is one number.
    pub fn number(&self, name: Name) -> Result<i64, ProbeError> {
        let mut value = [0_i64];
        self.read(name, &mut value)?;
        Ok(value[0])
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}
