//! Finds the type of a message that goes to an actor of another broker.

/// The value for the type that a message has. `None`: the list lacks its type, which is an error in the code, because only handles make messages.
macro_rules! by_type {
    ($message:expr, $($kind:ty: $pattern:pat => $value:expr),+ $(,)?) => {
        'found: {
            let message = $message;
            $(let message = match message.downcast::<$kind>() {
                Ok(found) => {
                    let $pattern = *found;
                    break 'found Some($value);
                }
                Err(other) => other,
            };)+
            drop(message);
            log::error!("a message has no form for another broker, it is lost");
            None
        }
    };
}

pub(super) use by_type;
