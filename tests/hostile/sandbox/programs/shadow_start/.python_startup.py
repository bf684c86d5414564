print("@REACHED@ startup")
