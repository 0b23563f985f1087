//! Forwards calls of a wrapping store to the store that it wraps.

/// Implements calls of [`object_store::ObjectStore`] by passing them unchanged to the store in a
/// field: `forward!(inner: get_opts, list);`, next to the calls that a wrapper implements itself.
/// The guard of remote stores uses none of these, because each of its calls must be considered.
macro_rules! forward {
    ($inner:ident: $($call:ident),+) => { $($crate::store::forward::forward! { @$call $inner })+ };
    (@put_opts $inner:ident) => { $crate::store::forward::forward! {
        @async $inner put_opts['b](location: &'b object_store::path::Path, payload: object_store::PutPayload, options: object_store::PutOptions)
            -> object_store::PutResult
    } };
    (@put_multipart_opts $inner:ident) => { $crate::store::forward::forward! {
        @async $inner put_multipart_opts['b](location: &'b object_store::path::Path, options: object_store::PutMultipartOptions)
            -> Box<dyn object_store::MultipartUpload>
    } };
    (@get_opts $inner:ident) => { $crate::store::forward::forward! {
        @async $inner get_opts['b](location: &'b object_store::path::Path, options: object_store::GetOptions) -> object_store::GetResult
    } };
    (@get_ranges $inner:ident) => { $crate::store::forward::forward! {
        @async $inner get_ranges['b, 'c](location: &'b object_store::path::Path, ranges: &'c [std::ops::Range<u64>]) -> Vec<bytes::Bytes>
    } };
    (@list_with_delimiter $inner:ident) => { $crate::store::forward::forward! {
        @async $inner list_with_delimiter['b](prefix: Option<&'b object_store::path::Path>) -> object_store::ListResult
    } };
    (@copy_opts $inner:ident) => { $crate::store::forward::forward! {
        @async $inner copy_opts['b, 'c](
            from: &'b object_store::path::Path, to: &'c object_store::path::Path, options: object_store::CopyOptions
        ) -> ()
    } };
    (@delete_stream $inner:ident) => { $crate::store::forward::forward! {
        @stream $inner delete_stream(locations: futures::stream::BoxStream<'static, object_store::Result<object_store::path::Path>>)
            -> object_store::path::Path
    } };
    (@list $inner:ident) => { $crate::store::forward::forward! {
        @stream $inner list(prefix: Option<&object_store::path::Path>) -> object_store::ObjectMeta
    } };
    (@list_with_offset $inner:ident) => { $crate::store::forward::forward! {
        @stream $inner list_with_offset(prefix: Option<&object_store::path::Path>, offset: &object_store::path::Path)
            -> object_store::ObjectMeta
    } };
    (@stream $inner:ident $call:ident($($argument:ident: $type:ty),*) -> $item:ty) => {
        fn $call(&self, $($argument: $type),*) -> futures::stream::BoxStream<'static, object_store::Result<$item>> {
            self.$inner.$call($($argument),*)
        }
    };
    // Written out as `async_trait` would expand it, because that macro cannot see inside this one.
    (@async $inner:ident $call:ident[$($life:lifetime),*]($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn $call<'a, $($life,)* 'answer>(&'a self, $($argument: $type),*) -> futures::future::BoxFuture<'answer, object_store::Result<$answer>>
        where
            'a: 'answer,
            $($life: 'answer,)*
            Self: 'answer,
        {
            self.$inner.$call($($argument),*)
        }
    };
}

pub(crate) use forward;
