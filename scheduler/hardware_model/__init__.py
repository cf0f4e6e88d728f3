"""What passes cost on a GPU: sizes of hardware and models, and a roofline over both."""
