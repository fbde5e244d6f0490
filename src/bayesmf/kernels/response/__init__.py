"""What the working response is drawn by: chains in time, and cells between cut points."""
