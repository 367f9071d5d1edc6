// Placeholder until the comm tests land.
int main() { return 0; }
