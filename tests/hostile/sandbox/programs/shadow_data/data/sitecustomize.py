print("@REACHED@ sitecustomize in data")
