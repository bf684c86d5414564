print("@REACHED@ usercustomize")
