"""Writing an assignment in the browser, as pure functions: form, folder, differences, proposals, dry runs."""
