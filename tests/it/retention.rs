//! The past goes: by count, by age, by bytes. What is not over stays.
