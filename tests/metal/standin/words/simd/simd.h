// Nothing: only macros are expanded here, Metal's words stay.
