"""What attention selects on given data, why, and which statements speak of it; as text, HTML, JSON and a drawing."""
